"""A gate over several event loops."""

import asyncio
import threading

from metagen.verifiers.code.gate import Gate


def test_places_are_taken_in_order_and_given_back() -> None:
    async def run() -> list[int]:
        gate, order = Gate(1), []

        async def one(number: int) -> None:
            async with gate.place():
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*map(one, range(5)))
        return order

    assert asyncio.run(run()) == [0, 1, 2, 3, 4]


def test_cancelled_waiters_cost_no_place() -> None:
    """Cancelled before the turn, in the moment of the turn, and after it."""

    async def run() -> None:
        gate = Gate(1)

        async def one() -> None:
            async with gate.place():
                await asyncio.sleep(1000)

        for cancel_first in (True, False):
            tasks = [asyncio.create_task(one()) for _ in range(3)]
            await asyncio.sleep(0)
            for task in tasks if cancel_first else reversed(tasks):
                task.cancel()
                if not cancel_first:
                    await asyncio.sleep(0)
            await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)
        async with asyncio.timeout(5), gate.place():
            pass

    asyncio.run(run())


def test_a_waiter_whose_loop_has_gone_is_passed_over() -> None:
    gate = Gate(1)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        async def run() -> None:
            async with gate.place():
                held.set()
                await asyncio.to_thread(release.wait)

        asyncio.run(run())

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    abandoned = asyncio.new_event_loop()
    task = abandoned.create_task(gate._enter())
    abandoned.run_until_complete(asyncio.sleep(0))
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is abandoned on purpose
    abandoned.close()
    release.set()
    thread.join()

    async def next_one() -> None:
        async with asyncio.timeout(5), gate.place():
            pass

    asyncio.run(next_one())
