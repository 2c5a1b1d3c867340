// http-cache-tests, from the package in a directory:
//   node cache_tests.mjs DIRECTORY origin             the origin server; prints its port
//   node cache_tests.mjs DIRECTORY client URL [TEST]  the client, with URL in front of the origin; prints a line of JSON for each test
import http from 'node:http'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [directory, part, base, only] = process.argv.slice(2)
const load = file => import(pathToFileURL(join(directory, file)))

// Its own program listens on every address, and reads its port from npm.
async function origin () {
  const [config, state, test] = await Promise.all(
    ['config', 'state', 'test'].map(async name => (await load(`server/handle-${name}.mjs`)).default))
  const handlers = { config, state, test }
  const server = http.createServer((request, response) => {
    const [part, ...rest] = new URL(request.url, 'http://origin').pathname.split('/').slice(1)
    const handler = handlers[part]
    if (handler) return handler(rest, request, response)
    response.writeHead(404).end()
  })
  server.listen(0, '127.0.0.1', () => console.log(`port ${server.address().port}`))
}

async function client () {
  const suites = (await load('tests/index.mjs')).default
  suites.push((await load('tests/surrogate-control.mjs')).default)
  const { runTests, getResults } = await load('client/runner.mjs')
  const { determineTestResult } = await load('lib/display.mjs')
  const fetch = createRequire(pathToFileURL(join(directory, 'cli.mjs')))('node-fetch')
  const all = suites.flatMap(suite => suite.tests).filter(test => !test.browser_only)
  const wanted = only ? all.filter(test => test.id === only).map(test => ({ ...test, dump: true })) : all
  await runTests([{ tests: wanted }], fetch, false, base)
  const results = getResults()
  // The third member is a symbol for terminals.
  const outcomes = { '✅': 'pass', 'Y': 'pass', '⛔️': 'fail', '⚠️': 'fail', 'N': 'fail', '⚪️': 'dependency', '🔹': 'setup', '↻': 'retry' }
  for (const test of wanted) {
    const symbol = determineTestResult(suites, test.id, results, !only)[2]
    const message = results[test.id] === true ? '' : results[test.id].join(': ')
    console.log(JSON.stringify({ id: test.id, kind: test.kind ?? 'required', outcome: outcomes[symbol] ?? symbol, message }))
  }
}

await (part === 'origin' ? origin : client)()
