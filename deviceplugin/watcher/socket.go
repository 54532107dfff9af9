package watcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/stats"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	unixsocket "github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/oneline"
)

// lastPause is the longest pause between attempts at a socket.
const lastPause = 2*time.Minute + 2*time.Second

// socket is one socket in the directory; its goroutine, run, admits the plugin behind it.
type socket struct {
	watcher *Watcher
	path    string
	id      identity // owned by Run's loop; zero once the socket was seen to go
	cancel  context.CancelFunc
	done    chan struct{} // closed at the end of the goroutine
}

// end says that the socket has gone. A later one of its name is another one.
func (s *socket) end() {
	s.id = identity{}
	s.cancel()
}

func (s *socket) hasEnded() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// run tries to admit the plugin, with growing pauses, until the socket has gone. Only a membership
// that lasted resets the pauses.
func (s *socket) run(ctx context.Context) {
	log := klog.FromContext(ctx).WithValues("socket", s.path)
	ctx = klog.NewContext(ctx, log)
	defer s.counts(isFound)()
	pauses := await.Pauses{First: s.watcher.cfg.FirstPause, Last: lastPause}
	places := s.watcher.first
	for pause := time.Duration(0); ctx.Err() == nil; places = s.watcher.again {
		member, err := s.inPlace(ctx, places)
		if err == nil {
			began, leave := time.Now(), s.counts(isRegistered)
			err = member.last(ctx)
			leave()
			if time.Since(began) > lastPause {
				pause = 0
			}
		}
		if ctx.Err() != nil {
			return
		}
		pause = pauses.Next(pause)
		log.Info("Plugin is asked again", "after", pause, "reason", err.Error())
		await.For(ctx, pause)
	}
}

// inPlace registers the plugin once there is a place for the attempt.
func (s *socket) inPlace(ctx context.Context, places chan struct{}) (*Membership, error) {
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
		return s.register(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// counts counts the socket until the returned function is called.
func (s *socket) counts(state string) (until func()) {
	s.watcher.plugins.WithLabelValues(s.path, state).Set(1)
	return func() {
		s.watcher.plugins.Delete(map[string]string{"socket_path": s.path, "state": state})
	}
}

var errEnded = errors.New("the plugin no longer answers")

// last returns when the socket has gone or the plugin has ended.
func (m *Membership) last(ctx context.Context) error {
	defer m.Leave()
	if !await.On(ctx, m.Ended) {
		return ctx.Err()
	}
	return errEnded
}

// register asks who the plugin is, passes it to its handler, and tells it the outcome.
func (s *socket) register(ctx context.Context) (*Membership, error) {
	began := time.Now()
	conn, err := s.dial(ctx)
	s.tell(ctx, Plugin{}, "Dial", began, err)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := registerapi.NewRegistrationClient(conn)
	began = time.Now()
	plugin, err := ask(ctx, client, s.path, s.watcher.cfg.Deadlines.Info)
	s.tell(ctx, plugin, "GetInfo", began, err)
	if err != nil {
		return nil, fmt.Errorf("get plugin info at socket %s: %w", s.path, err)
	}
	member, refused := s.takeIn(ctx, plugin)
	outcome := &registerapi.RegistrationStatus{PluginRegistered: refused == nil}
	if refused != nil {
		outcome.Error = refused.Error()
	}
	notifyCtx, cancel := context.WithTimeout(ctx, s.watcher.cfg.Deadlines.Notify)
	defer cancel()
	began = time.Now()
	_, err = client.NotifyRegistrationStatus(notifyCtx, outcome)
	s.tell(ctx, plugin, "NotifyRegistrationStatus", began, err)
	if refused != nil {
		return nil, refused
	}
	if err != nil && ctx.Err() == nil {
		// what counts is that it serves
		if member.Unheard != nil {
			member.Unheard(err)
			return member, nil
		}
		klog.FromContext(ctx).Info("Plugin refused the notice of its registration", "err", err)
	}
	return member, nil
}

// tell reports a call, unless the socket has gone meanwhile.
func (s *socket) tell(ctx context.Context, p Plugin, rpc string, began time.Time, err error) {
	if ctx.Err() == nil {
		s.watcher.cfg.Called(p, rpc, time.Since(began), err)
	}
}

// Ask asks the plugin behind a socket who it is. heard is as for socket.PluginClient.
func Ask(ctx context.Context, path string, patience time.Duration,
	heard func(path string) stats.Handler) (Plugin, error) {
	conn, err := unixsocket.PluginClient(path, patience, heard)
	if err != nil {
		return Plugin{}, err
	}
	defer conn.Close()
	return ask(ctx, registerapi.NewRegistrationClient(conn), path, patience)
}

func ask(ctx context.Context, client registerapi.RegistrationClient, path string,
	patience time.Duration) (Plugin, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	info, err := client.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return Plugin{}, err
	}
	return PluginAt(path, info), nil
}

// PluginAt returns what the plugin behind a socket says of itself.
func PluginAt(path string, info *registerapi.PluginInfo) Plugin {
	return Plugin{
		Type: info.GetType(), Name: info.GetName(), Versions: info.GetSupportedVersions(),
		Endpoint: cmp.Or(info.GetEndpoint(), path), Socket: path,
	}
}

// takeIn passes the plugin to the handler of its type. The texts are the kubelet's.
func (s *socket) takeIn(ctx context.Context, p Plugin) (*Membership, error) {
	handler := s.watcher.cfg.Handlers[p.Type]
	if handler == nil {
		return nil, fmt.Errorf("RegisterPlugin error -- no handler registered for plugin type: "+
			"%s at socket %s", oneline.Cut(p.Type, 64), s.path)
	}
	member, err := handler(ctx, p)
	if _, invalid := errors.AsType[*InvalidError](err); invalid {
		return nil, fmt.Errorf("RegisterPlugin error -- plugin validation failed with err: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("RegisterPlugin error -- plugin registration failed with err: %w",
			err)
	}
	return member, nil
}

// listens is how long a socket may refuse connections: a plugin makes it a moment before it listens.
const listens = 500 * time.Millisecond

// dial connects. A socket that goes on refusing has no listener, and is tried again after a pause.
func (s *socket) dial(ctx context.Context) (*unixsocket.Conn, error) {
	conn, err := unixsocket.PluginClient(s.path, s.watcher.cfg.Deadlines.Dial, s.watcher.cfg.Stats)
	if err != nil {
		return nil, fmt.Errorf("dial plugin at socket %s: %w", s.path, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.watcher.cfg.Deadlines.Dial)
	defer cancel()
	at := time.AfterFunc(listens, func() {
		if conn.DialError() != nil {
			cancel()
		}
	})
	defer at.Stop()
	if !conn.Ready(ctx) {
		return nil, errors.Join(fmt.Errorf("dial plugin at socket %s: %w", s.path,
			cmp.Or(conn.DialError(), ctx.Err())), conn.Close())
	}
	return conn, nil
}
