// OpenAI's client for JavaScript: node by_openai.cjs URL MODEL PROBLEMS.jsonl
const fs = require("fs");
const { OpenAI } = require("openai");

async function main([url, model, problems]) {
  const client = new OpenAI({ baseURL: url, apiKey: "none" });
  const right = [];
  for (const line of fs.readFileSync(problems, "utf8").trim().split("\n")) {
    const problem = JSON.parse(line);
    const messages = [{ role: "user", content: problem.question }];
    let text = "";
    for await (const chunk of await client.chat.completions.create({ model, messages, seed: 1234, stream: true })) {
      text += chunk.choices[0]?.delta.content ?? "";
    }
    const said = [...text.matchAll(/^A:(.*)$/gm)].map((found) => found[1]);
    right.push(said.at(-1) === problem.answer);
  }
  const accuracy = right.filter(Boolean).length / right.length;
  console.log(JSON.stringify({ accuracy, problems: right.length }));
}

main(process.argv.slice(2));
