// An application as people write one with node:http; `server.go` and `server.py` do the same. Writes `port N`.
import { createHash } from 'node:crypto'
import { EventEmitter, once } from 'node:events'
import { createServer } from 'node:http'

const go = new EventEmitter()

const server = createServer(async (request, response) => {
  switch (request.url.split('?')[0]) {
    case '/get':
      return response.end(`${request.method} ${request.url} ${request.headers.host} ${request.headers['x-forwarded-proto']}`)
    case '/port':
      return response.end(String(request.socket.remotePort))
    case '/echo':
      return request.pipe(response)
    case '/chunked':
      for (let n = 0; n < 10; n++) response.write(`piece ${n}\n`)
      return response.end()
    case '/events': {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' })
      for (let n = 0; n < 3; n++) {
        response.write(`data: ${n}\n\n`)
        await once(go, 'next')
      }
      return response.end()
    }
    case '/next':
      go.emit('next')
      return response.end('gone')
    case '/trailers': {
      const hash = createHash('sha256')
      for await (const data of request) hash.update(data)
      response.writeHead(200, { Trailer: 'X-Sum' })
      response.write('content')
      response.addTrailers({ 'X-Sum': `${request.trailers['x-sum'] ?? ''} ${hash.digest('hex')}` })
      return response.end()
    }
    default:
      response.statusCode = 404
      return response.end('nothing')
  }
})
server.listen(0, '127.0.0.1', () => console.log(`port ${server.address().port}`))
