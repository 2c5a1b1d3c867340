// An application as people write one with net/http; `server.mjs` and `server.py` do the same. Writes `port N`.
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
)

func main() {
	next := make(chan bool)
	http.HandleFunc("/get", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.URL, r.Host, r.Header.Get("X-Forwarded-Proto"))
	})
	http.HandleFunc("/port", func(w http.ResponseWriter, r *http.Request) {
		_, port, _ := net.SplitHostPort(r.RemoteAddr)
		io.WriteString(w, port)
	})
	http.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		// Answers while it reads.
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, r.Body)
	})
	http.HandleFunc("/chunked", func(w http.ResponseWriter, r *http.Request) {
		for n := range 10 {
			fmt.Fprintf(w, "piece %d\n", n)
			w.(http.Flusher).Flush()
		}
	})
	http.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", n)
			w.(http.Flusher).Flush()
			<-next
		}
	})
	http.HandleFunc("/next", func(w http.ResponseWriter, r *http.Request) {
		next <- true
		io.WriteString(w, "gone")
	})
	http.HandleFunc("/trailers", func(w http.ResponseWriter, r *http.Request) {
		hash := sha256.New()
		io.Copy(hash, r.Body)
		w.Header().Set("Trailer", "X-Sum")
		io.WriteString(w, "content")
		w.Header().Set("X-Sum", fmt.Sprintf("%s %x", r.Trailer.Get("X-Sum"), hash.Sum(nil)))
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("port %d\n", listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, nil))
}
