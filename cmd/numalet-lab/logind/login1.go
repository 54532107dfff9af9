package logind

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

const (
	name    = "org.freedesktop.login1"
	manager = name + ".Manager"
	path    = dbus.ObjectPath("/org/freedesktop/login1")
	driver  = "org.freedesktop.DBus"
)

// login1 is logind.
type login1 struct {
	owner      int // of its name on the bus: the number of its start
	preparing  bool
	delay      time.Duration
	configured func() time.Duration // what its configuration says; nil: it stays as it is
	locks      []*os.File           // ends of pipes
}

// Delay sets how long logind waits for the holders of inhibitors. When it is told to read its
// configuration again, configured says how long then; nil: as long as before.
func (b *Bus) Delay(now time.Duration, configured func() time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.login1.delay, b.login1.configured = now, configured
}

// Prepare signals that the machine goes down, or that it does not.
func (b *Bus) Prepare(preparing bool) {
	b.PrepareUnheard(preparing)
	b.signal(b.ownerName(), path, manager, "PrepareForShutdown", preparing)
}

// PrepareUnheard has logind prepare without signaling it.
func (b *Bus) PrepareUnheard(preparing bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.login1.preparing = preparing
}

// Pretend signals that the machine goes down, from a sender that is not logind.
func (b *Bus) Pretend() { b.signal(":1.666", path, manager, "PrepareForShutdown", true) }

// Restart has another logind take over: it prepares for nothing, and knows the inhibitors.
func (b *Bus) Restart() {
	before := b.ownerName()
	b.mu.Lock()
	b.login1.owner++
	b.login1.preparing = false
	b.mu.Unlock()
	b.signal(driver, "/org/freedesktop/DBus", driver, "NameOwnerChanged", name, before, b.ownerName())
}

// Locks counts the inhibitors that are held.
func (b *Bus) Locks() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.login1.locks = slices.DeleteFunc(b.login1.locks, func(end *os.File) bool {
		fds := []unix.PollFd{{Fd: int32(end.Fd())}}
		_, err := unix.Poll(fds, 0)
		released := err == nil && fds[0].Revents&unix.POLLHUP != 0
		if released {
			end.Close()
		}
		return released
	})
	return len(b.login1.locks)
}

func (b *Bus) ownerName() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.login1.name()
}

func (l *login1) name() string { return fmt.Sprintf(":1.%d", 100+l.owner) }

func (b *Bus) signal(sender string, at dbus.ObjectPath, of, member string, body ...any) {
	b.mu.Lock()
	var all []*client
	for c := range b.clients {
		all = append(all, c)
	}
	silent := b.faults.Silent
	b.mu.Unlock()
	if silent {
		return
	}
	for _, c := range all {
		c.send(&dbus.Message{Type: dbus.TypeSignal, Body: body,
			Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldPath: dbus.MakeVariant(at), dbus.FieldInterface: dbus.MakeVariant(of),
				dbus.FieldMember: dbus.MakeVariant(member), dbus.FieldSender: dbus.MakeVariant(sender),
			}})
	}
}

// answer answers a call.
func (b *Bus) answer(c *client, call *dbus.Message) {
	method, _ := call.Headers[dbus.FieldMember].Value().(string)
	b.mu.Lock()
	if b.faults.Silent {
		b.mu.Unlock()
		return
	}
	var body []any
	err := errors.New("refused")
	b.counts.Calls++
	if slices.Contains(b.faults.Refused, method) {
		b.counts.Refused++
	} else if body, err = b.login1.call(method, call.Body); err == nil {
		switch method {
		case "KillUnit":
			b.counts.Reloads++
		case "Inhibit":
			b.counts.Inhibitors++
		}
	}
	b.mu.Unlock()
	reply := &dbus.Message{Type: dbus.TypeMethodReply, Body: body,
		Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
			dbus.FieldSender:      dbus.MakeVariant(driver),
		}}
	if err != nil {
		reply.Type, reply.Body = dbus.TypeError, []any{err.Error()}
		reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.Failed")
	}
	c.send(reply)
}

func (l *login1) call(method string, args []any) ([]any, error) {
	switch method {
	case "Hello":
		return []any{":1.1"}, nil
	case "AddMatch":
		return nil, nil
	case "GetNameOwner":
		return []any{l.name()}, nil
	case "Get":
		switch args[1] {
		case "InhibitDelayMaxUSec":
			return []any{dbus.MakeVariant(uint64(l.delay / time.Microsecond))}, nil
		case "PreparingForShutdown":
			return []any{dbus.MakeVariant(l.preparing)}, nil
		}
	case "KillUnit":
		if fmt.Sprint(args) != "[systemd-logind.service all 1]" {
			return nil, fmt.Errorf("kill %v", args)
		}
		if l.configured != nil {
			l.delay = l.configured()
		}
		return nil, nil
	case "Inhibit":
		return l.inhibit(args)
	}
	return nil, fmt.Errorf("no such method: %s %v", method, args)
}

// inhibit refuses, as logind does, once it prepares.
func (l *login1) inhibit(args []any) ([]any, error) {
	if args[0] != "shutdown" || args[3] != "delay" {
		return nil, fmt.Errorf("inhibit %v", args)
	}
	if l.preparing {
		return nil, errors.New("the operation inhibition has been requested for is already running")
	}
	own, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	fd, err := dup(theirs)
	if err != nil {
		return nil, errors.Join(err, own.Close())
	}
	l.locks = append(l.locks, own)
	return []any{dbus.UnixFD(fd)}, nil
}

// dup returns a descriptor that no os.File owns.
func dup(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	if failed := raw.Control(func(from uintptr) {
		fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0)
	}); failed != nil {
		return 0, failed
	}
	return fd, err
}
