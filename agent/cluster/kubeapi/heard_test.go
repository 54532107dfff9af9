package kubeapi

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/agent/node/config"
)

// TestHeard: of a connection that is closed it is told when nothing came over it for as long as a ping
// may go unanswered, although something was sent, and else never.
func TestHeard(t *testing.T) {
	const most = quiet + pingTimeout
	for name, test := range map[string]struct {
		last   func(ours, theirs net.Conn)
		silent time.Duration
		want   time.Duration
	}{
		"nothing was sent, nothing came": {func(_, _ net.Conn) {}, time.Hour, 0},
		"an answer, and silence": {func(ours, theirs net.Conn) {
			send(ours, theirs)
			time.Sleep(time.Millisecond)
			send(theirs, ours)
		}, time.Hour, 0},
		"a question, and not silent for long": {send, most - time.Second - 1, 0},
		"a question, and silence":             {send, most, most + time.Second},
		"a question long after the answer": {func(ours, theirs net.Conn) {
			send(theirs, ours)
			time.Sleep(quiet)
			send(ours, theirs)
		}, pingTimeout, most},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, theirs := net.Pipe()
				var got time.Duration
				calls := 0
				ours := newHeard(near, func(_ net.Conn, silent time.Duration) {
					calls++
					got = silent
				})
				time.Sleep(time.Second)
				test.last(ours, theirs)
				time.Sleep(test.silent)
				ours.Close()
				ours.Close()
				if got != test.want || calls > 1 {
					t.Errorf("told %d times of %v, want %v", calls, got, test.want)
				}
			})
		})
	}
}

// send has one byte come over.
func send(from, to net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.ReadFull(to, make([]byte, 1))
	}()
	from.Write([]byte{1})
	<-done
}

// TestPings: each of the clients asks by pings whether its connection leads anywhere, whatever the
// kubeconfig has for a user and an authority.
func TestPings(t *testing.T) {
	a, dir := newAPIServer(t), t.TempDir()
	write(t, filepath.Join(dir, "own.pem"), a.pair(t, "system:node:n", time.Now().Add(time.Hour)))
	write(t, filepath.Join(dir, "token"), []byte("fromfile"))
	for _, user := range []string{
		"{}", "{token: abc}", "{tokenFile: token}",
		"{client-certificate: own.pem, client-key: own.pem}",
		"{exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}}",
	} {
		for _, rotate := range []bool{false, true} {
			c := start(t, Config{Kubelet: settings(rotate), Cluster: config.Cluster{
				Kubeconfig: a.kubeconfig(t, dir, "kubelet.conf", user),
				CertDir:    t.TempDir(),
			}})
			own, _, err := credentials(t.Context(), Config{Kubelet: settings(rotate),
				Cluster: config.Cluster{Kubeconfig: filepath.Join(dir, "kubelet.conf")}})
			if err != nil {
				t.Fatal(err)
			}
			rt, err := c.transport(own)
			if err != nil {
				t.Fatal(err)
			}
			if in := innermost(rt); in == nil || in.HTTP2 == nil ||
				in.HTTP2.SendPingTimeout != quiet || in.HTTP2.PingTimeout != pingTimeout {
				t.Errorf("%s, rotate %v: %T has %+v", user, rotate, rt, in)
			}
		}
	}
}
