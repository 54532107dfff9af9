package controlplane

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/numalet/numalet/test/scratch"
)

// TestTunnel: data for an address of this machine arrives on loopback, each side sees the end of
// the other, and the client gets errors.
func TestTunnel(t *testing.T) {
	socket := filepath.Join(scratch.Dir(t), "tunnel.sock")
	tunnel, err := openTunnel("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.stop()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn) // until the other side has ended
			}()
		}
	}()
	_, port, err := net.SplitHostPort(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range append(ownAddresses(t), "127.0.0.1") {
		conn, answer := ask(t, socket, "CONNECT", net.JoinHostPort(host, port))
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", host, answer.Status)
			continue
		}
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); string(got) != "hello" || err != nil {
			t.Errorf("%s: %q came back, %v", host, got, err)
		}
	}
	for _, tc := range []struct{ method, address, want string }{
		{"GET", "/", "it takes CONNECT only"},
		{"CONNECT", "127.0.0.1", "missing port"},
		{"CONNECT", "127.0.0.1:1", "connection refused"},
	} {
		conn, answer := ask(t, socket, tc.method, tc.address)
		text, err := io.ReadAll(conn)
		if answer.StatusCode != http.StatusBadGateway || !strings.Contains(string(text), tc.want) {
			t.Errorf("%s %s: %s %s %v", tc.method, tc.address, answer.Status, text, err)
		}
	}
}

// TestNoServers: the error names missing binaries and how to build them.
func TestNoServers(t *testing.T) {
	_, err := Start(t.Context(), Config{Binaries: "/none", Dir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "kube-scheduler, kubectl in \"/none\"") ||
		!strings.Contains(err.Error(), "run test/tools/build.sh cluster") {
		t.Errorf("%v", err)
	}
}

// TestTunnelStops: stop ends connections in use.
func TestTunnelStops(t *testing.T) {
	socket := filepath.Join(scratch.Dir(t), "tunnel.sock")
	tunnel, err := openTunnel("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	conn, _ := ask(t, socket, "CONNECT", silent.Addr().String())
	tunnel.stop()
	if _, err := io.ReadAll(conn); err != nil {
		t.Error(err)
	}
}

// ask opens a connection through the tunnel and reads the header of the answer.
func ask(t *testing.T, socket, method, address string) (net.Conn, *http.Response) {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %[2]s\r\n\r\n", method, address)
	if err != nil {
		t.Fatal(err)
	}
	head := readHead(t, conn)
	answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(head)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn, answer
}

// readHead reads only the header, byte by byte.
func readHead(t *testing.T, from io.Reader) string {
	t.Helper()
	var head strings.Builder
	for b := make([]byte, 1); !strings.HasSuffix(head.String(), "\r\n\r\n"); {
		if _, err := io.ReadFull(from, b); err != nil {
			t.Fatalf("after %q: %v", head.String(), err)
		}
		head.Write(b)
	}
	return head.String()
}

func ownAddresses(t *testing.T) (out []string) {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok {
			out = append(out, ip.IP.String())
		}
	}
	return out
}
