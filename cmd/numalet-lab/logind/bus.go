package logind

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"

	"github.com/godbus/dbus/v5"
)

// Bus is a bus at a unix socket. All methods may be called from anywhere.
type Bus struct {
	path string
	work sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	listener net.Listener
	clients  map[*client]bool
	login1   login1
	faults   Faults
	counts   Counts
}

// Counts say how often what was asked for.
type Counts struct {
	Greetings, Calls, Refused, Reloads, Inhibitors int
}

// Counts returns what was asked for so far.
func (b *Bus) Counts() Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts
}

// Faults disturb the bus, or logind on it.
type Faults struct {
	// Silent: nothing is answered, not even the greeting.
	Silent bool
	// Refused has methods that are answered with an error.
	Refused []string
}

// Listen makes a bus at the path of a socket.
func Listen(path string) (*Bus, error) {
	b := &Bus{path: path, clients: map[*client]bool{}}
	b.login1.owner = 1
	return b, b.Open()
}

// Address is for DBUS_SYSTEM_BUS_ADDRESS.
func (b *Bus) Address() string { return "unix:path=" + b.path }

// Open listens, again after Close.
func (b *Bus) Open() error {
	l, err := net.Listen("unix", b.path)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listener = l
	b.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.work.Go(func() { b.serve(conn.(*net.UnixConn)) })
		}
	})
	return nil
}

// Close has the bus disappear with all connections. Inhibitors stay: logind has them.
func (b *Bus) Close() error {
	b.mu.Lock()
	err := b.listener.Close()
	for c := range b.clients {
		c.conn.Close()
	}
	b.mu.Unlock()
	b.work.Wait()
	return err
}

// Fail sets what is wrong from now on.
func (b *Bus) Fail(f Faults) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = f
}

// client is one connection.
type client struct {
	conn *net.UnixConn

	mu     sync.Mutex // guards writes and serial
	serial uint32
}

func (b *Bus) serve(conn *net.UnixConn) {
	c := &client{conn: conn}
	defer conn.Close()
	b.enter(c)
	defer b.leave(c)
	in := bufio.NewReader(conn)
	if err := b.greet(in, conn); err != nil {
		return
	}
	for {
		m, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		if m.Type == dbus.TypeMethodCall {
			b.answer(c, m)
		}
	}
}

func (b *Bus) enter(c *client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts.Greetings++
	b.clients[c] = true
}

func (b *Bus) leave(c *client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.clients, c)
}

// greet lets every client in.
func (b *Bus) greet(in *bufio.Reader, out io.Writer) error {
	if _, err := in.ReadByte(); err != nil { // the first is a zero
		return err
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if b.silent() {
			continue
		}
		var say string
		switch words := strings.Fields(line); {
		case len(words) == 0:
			return errors.New("empty line")
		case words[0] == "BEGIN":
			return nil
		case words[0] == "AUTH" && len(words) == 1:
			say = "REJECTED EXTERNAL"
		case words[0] == "AUTH", words[0] == "DATA":
			say = "OK 0123456789abcdef0123456789abcdef"
		case words[0] == "NEGOTIATE_UNIX_FD":
			say = "AGREE_UNIX_FD"
		default:
			say = "ERROR"
		}
		if _, err := fmt.Fprint(out, say+"\r\n"); err != nil {
			return err
		}
	}
}

func (b *Bus) silent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.faults.Silent
}

// send writes a message. The files in its body are closed then.
func (c *client) send(m *dbus.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	if len(m.Body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(m.Body...))
	}
	for _, v := range m.Body {
		if fd, is := v.(dbus.UnixFD); is {
			m.Headers[dbus.FieldUnixFDs] = dbus.MakeVariant(uint32(1))
			defer syscall.Close(int(fd))
		}
	}
	var out bytes.Buffer
	fds, err := m.EncodeToWithFDs(&out, binary.LittleEndian)
	if err != nil {
		panic(err)
	}
	raw := out.Bytes()
	binary.LittleEndian.PutUint32(raw[8:], c.serial)
	_, _, _ = c.conn.WriteMsgUnix(raw, syscall.UnixRights(fds...), nil) // a client may be gone
}
