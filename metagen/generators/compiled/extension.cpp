// What Python sees of the compiled steps (`compiled/build.py` compiles this file).

#include <torch/csrc/utils/pybind.h>

#include "blocks.h"
#include "draw.h"
#include "speculate.h"

PYBIND11_MODULE(EXTENSION, module) {
    namespace py = pybind11;
    using namespace metagen;
    py::class_<Matrix>(module, "Matrix")
        .def(py::init<
             Optional, Optional, Optional, int64_t, Optional, Optional, std::map<int64_t, std::pair<Tensor, Tensor>>>());
    py::class_<Layer>(module, "Layer")
        .def(py::init<Tensor, Matrix, Optional, Matrix, Tensor, Matrix, Matrix>());
    py::class_<Blocks>(module, "Blocks")
        .def(py::init<int64_t, int64_t, int64_t, double, Tensor, std::vector<Layer>, Tensor, int64_t>())
        .def("run", &Blocks::run, py::call_guard<py::gil_scoped_release>());
    module.def("draw", &draw, py::call_guard<py::gil_scoped_release>());
    module.def("number", [](int64_t seed, int64_t position, int64_t index, int64_t purpose) {
        return number(seed, position, index, static_cast<Purpose>(purpose));
    });
    module.def("draft", &draft, py::call_guard<py::gil_scoped_release>());
    module.def("judge", &judge, py::call_guard<py::gil_scoped_release>());
}
