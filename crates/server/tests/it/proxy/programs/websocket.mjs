// WebSocket by the package ws of npm, which lies in a directory:
//   node websocket.mjs DIRECTORY server                    writes `port N`, and does what clients tell it
//   node websocket.mjs DIRECTORY client PORT h1|h2         writes `ok NAME` for each case, and ends with 1 at the first that fails
import assert from 'node:assert/strict'
import { once } from 'node:events'
import http2 from 'node:http2'
import { createRequire } from 'node:module'

const [directory, role, port, protocol] = process.argv.slice(2)
const WebSocket = createRequire(`${directory}/`)('ws')

// Echoes messages as they came, but for commands in text.
function serve() {
  const handleProtocols = (protocols) => (protocols.has('echo') ? 'echo' : false)
  const server = new WebSocket.Server({ host: '127.0.0.1', port: 0, handleProtocols, perMessageDeflate: { threshold: 0 } })
  server.on('listening', () => console.log(`port ${server.address().port}`))
  server.on('connection', (socket) => {
    // The client sees the code.
    socket.on('error', () => {})
    socket.on('message', (data, isBinary) => {
      const [command, value] = isBinary ? [] : data.toString().split(' ')
      switch (command) {
        case 'close':
          return socket.close(Number(value), 'as you like')
        case 'terminate':
          return socket.terminate()
        case 'ping':
          socket.once('pong', (data) => socket.send(`pong ${data}`))
          return socket.ping(value)
        default:
          return socket.send(data, { binary: isBinary })
      }
    })
    socket.on('close', (code) => console.log(`closed ${code}`))
  })
}

const authority = `localhost:${port}`
const session = protocol === 'h2' ? http2.connect(`https://${authority}`, { settings: { initialWindowSize: 1 << 20 } }) : undefined

async function open(options = {}) {
  if (!session) {
    const socket = new WebSocket(`wss://${authority}/chat`, ['other', 'echo'], { perMessageDeflate: false, ...options })
    await once(socket, 'open')
    return socket
  }
  if (!session.remoteSettings.enableConnectProtocol) await once(session, 'remoteSettings')
  assert.equal(session.remoteSettings.enableConnectProtocol, true)
  const stream = session.request({
    ':method': 'CONNECT',
    ':protocol': 'websocket',
    ':path': '/chat',
    'sec-websocket-version': '13',
    'sec-websocket-protocol': 'other, echo',
  })
  const [head] = await once(stream, 'response')
  assert.equal(head[':status'], 200)
  assert.equal(head['sec-websocket-protocol'], 'echo')
  // As the package's own server makes one of a socket, but with a client's masks.
  const socket = new WebSocket(null, undefined, { autoPong: true })
  socket._isServer = false
  socket.setSocket(stream, Buffer.alloc(0), { allowSynchronousEvents: true, maxPayload: 100 << 20, skipUTF8Validation: false })
  return socket
}

async function next(socket) {
  const [data, isBinary] = await once(socket, 'message')
  return isBinary ? data : data.toString()
}

async function closed(socket) {
  const [code, reason] = await once(socket, 'close')
  return [code, reason.toString()]
}

function pattern(length) {
  const data = Buffer.alloc(length)
  for (let at = 0; at < length; at++) data[at] = (at * 31 + (at >> 8)) & 255
  return data
}

const cases = {
  async text(socket) {
    for (const text of ['', 'a', 'hello €😀', 'x'.repeat(125), 'x'.repeat(126), 'x'.repeat(65_535), 'x'.repeat(65_536)]) {
      socket.send(text)
      assert.equal(await next(socket), text)
    }
  },
  async binary(socket) {
    for (const length of [0, 1, 125, 126, 127, 128, 65_535, 65_536, 65_537, 1_000_003]) {
      socket.send(pattern(length))
      assert.deepEqual(await next(socket), pattern(length), length)
    }
  },
  async fragments(socket) {
    const control = once(socket, 'pong')
    socket.send('one ', { fin: false })
    socket.send('€'.repeat(30_000), { fin: false })
    socket.ping('between')
    socket.send('', { fin: false })
    socket.send(' end', { fin: true })
    assert.equal(await next(socket), `one ${'€'.repeat(30_000)} end`)
    assert.equal((await control)[0].toString(), 'between')
  },
  async pings(socket) {
    for (const payload of ['', 'p', 'p'.repeat(125)]) {
      socket.ping(payload)
      assert.equal((await once(socket, 'pong'))[0].toString(), payload)
    }
    socket.send('ping own')
    assert.equal(await next(socket), 'pong own')
  },
  async large(socket) {
    const data = pattern(16 << 20)
    socket.send(data)
    assert.ok(data.equals(await next(socket)))
  },
  async many(socket) {
    const came = []
    const all = new Promise((resolve) => socket.on('message', (data) => came.push(data.toString()) === 1000 && resolve()))
    for (let n = 0; n < 1000; n++) socket.send(`message ${n}`)
    await all
    came.forEach((data, n) => assert.equal(data, `message ${n}`))
  },
  async 'both directions at once'(socket) {
    const data = pattern(300_000)
    let came = 0
    const all = new Promise((resolve) => socket.on('message', (echo) => (assert.ok(data.equals(echo)), ++came === 30 && resolve())))
    for (let n = 0; n < 30; n++) socket.send(data)
    await all
  },
  async 'close by the client'(socket) {
    for (const [code, reason] of [[1000, ''], [1001, 'away'], [4321, 'r'.repeat(123)]]) {
      const own = await open()
      own.close(code, reason)
      assert.deepEqual(await closed(own), [code, reason])
    }
  },
  async 'close by the server'(socket) {
    for (const code of [1000, 1011, 4000]) {
      const own = await open()
      own.send(`close ${code}`)
      assert.deepEqual(await closed(own), [code, 'as you like'])
    }
  },
  async 'a server that is lost'(socket) {
    socket.on('error', () => {})
    socket.send('terminate now')
    assert.equal((await closed(socket))[0], 1006)
  },
  async 'text that is no UTF-8'(socket) {
    socket.send(Buffer.from([0xce, 0xba, 0xe1, 0xbd, 0xb9, 0xcf, 0x83, 0xed, 0xa0, 0x80]), { binary: false })
    assert.equal((await closed(socket))[0], 1007)
  },
}

if (protocol === 'h1') {
  cases.compressed = async () => {
    const socket = await open({ perMessageDeflate: { threshold: 0 } })
    assert.match(socket.extensions, /permessage-deflate/)
    for (const text of ['', 'compressed '.repeat(50_000)]) {
      socket.send(text)
      assert.equal(await next(socket), text)
    }
    socket.close()
    await closed(socket)
  }
}

if (role === 'server') {
  serve()
} else {
  for (const [name, run] of Object.entries(cases)) {
    const socket = await open()
    assert.equal(socket.protocol === 'echo' || protocol === 'h2', true)
    try {
      await run(socket)
    } catch (error) {
      console.error(`${name}:`, error)
      process.exit(1)
    }
    if (socket.readyState === WebSocket.OPEN) socket.close()
    console.log(`ok ${name}`)
  }
  session?.close()
  process.exit(0)
}
