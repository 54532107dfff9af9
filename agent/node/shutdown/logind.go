package shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/files"
)

// Names of logind's API (org.freedesktop.login1(5)) and of the bus.
const (
	login1         = "org.freedesktop.login1"
	login1Path     = dbus.ObjectPath("/org/freedesktop/login1")
	manager        = login1 + ".Manager"
	prepare        = "PrepareForShutdown"
	bus            = "org.freedesktop.DBus"
	ownerChanged   = "NameOwnerChanged"
	systemdName    = "org.freedesktop.systemd1"
	systemd1Path   = dbus.ObjectPath("/org/freedesktop/systemd1")
	hangUp         = int32(1) // SIGHUP, which has logind read its configuration again
	logindUnit     = "systemd-logind.service"
	dropIn         = "99-kubelet.conf"
	patience       = 5 * time.Second // of a call
	firstPause     = time.Second     // before connecting again
	longestPause   = 10 * time.Second
	shortDelayAsks = 30 * time.Second // between two tries to have logind wait longer
)

// Logind connects to logind over the system bus, of DBUS_SYSTEM_BUS_ADDRESS if that is set, and
// keeps connecting when one of both goes away.
type Logind struct {
	// DropIns is the folder of logind's configuration, made if need be: /etc/systemd/logind.conf.d.
	DropIns string
}

// client is Logind at work, in one goroutine.
type client struct {
	Logind
	delay time.Duration // that logind is to wait
	tell  func(context.Context, news) bool
	take  <-chan struct{} // an inhibitor is asked for
	// failed and short are why logind is not followed, and why it does not wait as long as it is to.
	failed, short complaint.Complaint[string]
}

// news holds what the client tells. lock belongs to taken.
type news struct {
	heard
	lock *os.File
}

// run connects, and again whenever that ends, until ctx does.
func (c *client) run(ctx context.Context) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := c.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if !c.failed.Lasts() {
			pause = firstPause
		}
		if c.failed.Begins(complaint.Of(err)) {
			klog.FromContext(ctx).Error(err, "logind is not followed: the node's pods would not end in "+
				"order if the machine went down now; connecting again until it is")
		}
		if !await.For(ctx, pause) {
			return
		}
	}
}

// session follows one logind as long as it and the bus are there.
func (c *client) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := connect(ctx, cancel)
	if err != nil {
		return err
	}
	defer conn.Close()
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	l := remote{conn}
	is, owner, err := l.follow(ctx)
	if err != nil {
		return err
	}
	if is.delay, err = c.lengthen(ctx, l, is.delay); err != nil {
		return err
	}
	drop(c.take) // it was asked for in an earlier session
	if is.preparing {
		c.follows(ctx)
	}
	c.tell(ctx, news{heard: is})
	return c.listen(ctx, l, owner, signals, is.delay)
}

// follows ends the complaint that logind is not followed.
func (c *client) follows(ctx context.Context) {
	if c.failed.Changes("") {
		klog.FromContext(ctx).Info("logind is followed again")
	}
}

// listen passes on what logind says, until it or the bus is gone.
func (c *client) listen(ctx context.Context, l remote, owner string, signals <-chan *dbus.Signal,
	delay time.Duration) error {
	for {
		var again <-chan time.Time
		if delay < c.delay {
			again = time.After(shortDelayAsks)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
			longer, err := c.lengthen(ctx, l, delay)
			if err != nil {
				return err
			}
			if longer != delay { // as if it were found anew: the waves are longer
				return errChanged
			}
		case <-c.take:
			lock, err := l.inhibit(ctx)
			if err != nil {
				return err
			}
			c.follows(ctx)
			if !c.tell(ctx, news{heard: heard{kind: taken}, lock: lock}) {
				return lock.Close()
			}
		case s, ok := <-signals:
			switch {
			case !ok:
				return errors.New("the system bus closed the connection")
			case s.Name == bus+"."+ownerChanged && s.Sender == bus:
				return errChanged
			case s.Name == manager+"."+prepare && s.Sender == owner && len(s.Body) == 1:
				if preparing, is := s.Body[0].(bool); is {
					c.tell(ctx, news{heard: heard{kind: signaled, preparing: preparing}})
				}
			}
		}
	}
}

// errChanged ends a session: logind is another one, or has another configuration.
var errChanged = errors.New("logind has restarted or changed")

// drop takes a value out of a channel if there is one.
func drop(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// lengthen has logind wait as long as all waves take, if it can be done, and returns how long it
// waits. An error is the bus's.
func (c *client) lengthen(ctx context.Context, l remote, delay time.Duration) (
	time.Duration, error) {
	if delay >= c.delay {
		c.short.Changes("")
		return delay, nil
	}
	why := c.override(ctx, l)
	for pause := 100 * time.Millisecond; pause < 3200*time.Millisecond && why == nil; pause *= 2 {
		var err error
		if delay, err = l.delay(ctx); err != nil {
			return delay, err
		}
		if delay >= c.delay {
			c.short.Changes("")
			return delay, nil
		}
		if !await.For(ctx, pause) {
			return delay, ctx.Err()
		}
	}
	if why == nil {
		why = fmt.Errorf("%s is not the last word: look for other settings of InhibitDelayMaxSec",
			filepath.Join(c.DropIns, dropIn))
	}
	if c.short.Begins(why.Error()) {
		klog.FromContext(ctx).Error(why, "logind waits less for pods than they have to end, and each "+
			"wave is shortened in proportion", "waits", delay, "asked", c.delay)
	}
	return delay, nil
}

// override sets InhibitDelayMaxSec in a drop-in, as a kubelet does, and has logind read it.
func (c *client) override(ctx context.Context, l remote) error {
	if err := os.MkdirAll(c.DropIns, 0o755); err != nil {
		return fmt.Errorf("make the folder of logind's configuration: %w", err)
	}
	seconds := int64((c.delay + time.Second - 1) / time.Second)
	path := filepath.Join(c.DropIns, dropIn)
	if err := files.Replace(path, fmt.Appendf(nil,
		"# numalet: the time of all waves in which pods end (shutdownGracePeriod)\n"+
			"[Login]\nInhibitDelayMaxSec=%d\n", seconds)); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o644); err != nil {
		return err
	}
	return l.reload(ctx)
}

// connect opens a connection of our own to the system bus, which ends with ctx. A bus that does not
// answer is given up with cancel.
func connect(ctx context.Context, cancel func()) (*dbus.Conn, error) {
	late := time.AfterFunc(patience, cancel)
	conn, err := dbus.SystemBusPrivate(dbus.WithContext(ctx),
		dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if err != nil {
		late.Stop()
		return nil, fmt.Errorf("connect to the system bus: %w", err)
	}
	if err = conn.Auth(nil); err == nil {
		err = conn.Hello()
	}
	if !late.Stop() {
		err = context.DeadlineExceeded
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("greet the system bus: %w", err), conn.Close())
	}
	return conn, nil
}

// remote is logind at the end of a connection. Each call has its deadline.
type remote struct{ conn *dbus.Conn }

func (l remote) call(ctx context.Context, at dbus.BusObject, method string, args []any,
	results ...any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := at.CallWithContext(ctx, method, 0, args...).Store(results...); err != nil {
		return fmt.Errorf("call %s: %w", method, err)
	}
	return nil
}

func (l remote) logind() dbus.BusObject { return l.conn.Object(login1, login1Path) }

func (l remote) property(ctx context.Context, name string, value any) error {
	var v dbus.Variant
	err := l.call(ctx, l.logind(), bus+".Properties.Get", []any{manager, name}, &v)
	if err == nil {
		err = v.Store(value)
	}
	if err != nil {
		return fmt.Errorf("read %s of logind: %w", name, err)
	}
	return nil
}

// follow subscribes to what logind tells, and then reads how it is: nothing is missed. owner is its
// name on the bus, which it has until it ends: any process may send a signal of that name.
func (l remote) follow(ctx context.Context) (was heard, owner string, err error) {
	was.kind = found
	for _, match := range []string{
		fmt.Sprintf("type='signal',sender='%s',interface='%s',member='%s'", login1, manager, prepare),
		fmt.Sprintf("type='signal',sender='%s',member='%s',arg0='%s'", bus, ownerChanged, login1),
	} {
		if err = l.call(ctx, l.conn.BusObject(), bus+".AddMatch", []any{match}); err != nil {
			return was, "", err
		}
	}
	if was.delay, err = l.delay(ctx); err != nil { // which starts it if need be
		return was, "", err
	}
	if err = l.call(ctx, l.conn.BusObject(), bus+".GetNameOwner", []any{login1},
		&owner); err != nil {
		return was, "", err
	}
	err = l.property(ctx, "PreparingForShutdown", &was.preparing)
	return was, owner, err
}

func (l remote) delay(ctx context.Context) (time.Duration, error) {
	var microseconds uint64
	err := l.property(ctx, "InhibitDelayMaxUSec", &microseconds)
	return time.Duration(min(microseconds, uint64(longest/time.Microsecond))) * time.Microsecond, err
}

// reload has logind read its configuration.
func (l remote) reload(ctx context.Context) error {
	return l.call(ctx, l.conn.Object(systemdName, systemd1Path), systemdName+".Manager.KillUnit",
		[]any{logindUnit, "all", hangUp})
}

// inhibit takes an inhibitor, which lasts until the file is closed.
func (l remote) inhibit(ctx context.Context) (*os.File, error) {
	var fd dbus.UnixFD
	if err := l.call(ctx, l.logind(), manager+".Inhibit", []any{"shutdown", "kubelet",
		"Pods need time to end before the machine goes down", "delay"}, &fd); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "inhibitor"), nil
}
