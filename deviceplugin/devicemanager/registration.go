package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/bounded"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology/podspec"
)

// registrar takes plugins in, from their own registrations and from the plugin registry, and hands
// their links to the loop. Unless Strict is set, a plugin that cannot be reached yet is dialled
// later, by its link.
type registrar struct{ linkSettings }

// serve answers registrations until ctx is done. If the socket is removed, serve makes it again, so
// that plugins can register and those that watch for it do.
func (r registrar) serve(ctx context.Context, s *socket.Listener) error {
	for s != nil {
		if err := r.serveOn(ctx, s); err != nil || ctx.Err() != nil {
			return err
		}
		klog.FromContext(ctx).Info("Device plugin socket was removed and is made again",
			"socket", s.Path())
		s = listenAgain(ctx, r.cfg.Dirs.Plugins)
	}
	return nil
}

// serveOn answers registrations until the socket is removed or ctx is done; it returns after the
// last handler.
func (r registrar) serveOn(ctx context.Context, s *socket.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := []grpc.ServerOption{grpc.WaitForHandlers(true)}
	if r.cfg.Stats != nil {
		options = append(options, grpc.StatsHandler(r.cfg.Stats(s.Path())))
	}
	server := grpc.NewServer(options...)
	v1beta1.RegisterRegistrationServer(server, registration{registrar: r, log: klog.FromContext(ctx)})
	group.Go(func() error {
		untilGone(ctx, s)
		cancel()
		return nil
	})
	group.Go(func() error {
		defer context.AfterFunc(ctx, server.Stop)()
		err := server.Serve(bounded.Listener(s, bounded.Connections()))
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("serve device plugin registration: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// registration serves Registration.
type registration struct {
	v1beta1.UnimplementedRegistrationServer
	registrar
	log klog.Logger
}

func (r registration) Register(
	ctx context.Context, req *v1beta1.RegisterRequest,
) (*v1beta1.Empty, error) {
	_, err := r.register(klog.NewContext(ctx, r.log), req.GetResourceName(),
		req.GetEndpoint(), func() (*link, error) { return accept(r.cfg, req) })
	if err != nil {
		return nil, err
	}
	return &v1beta1.Empty{}, nil
}

// register admits a plugin, whose link accept makes, or refuses it.
func (r registrar) register(ctx context.Context, resource, endpoint string,
	accept func() (*link, error)) (*link, error) {
	log := klog.FromContext(ctx).WithValues("resource", oneline.Of(resource),
		"endpoint", oneline.Of(endpoint))
	known := podspec.IsExtended(resource)
	if known { // any other name would only waste memory
		r.metrics.registrations.WithLabelValues(resource).Inc()
	}
	l, err := accept()
	if err == nil {
		err = r.admit(ctx, l)
	}
	if err == nil {
		log.Info("Device plugin registered")
		return l, nil
	}
	why := oneline.Of(err.Error())
	log.Info("Device plugin registration refused", "reason", why)
	if known {
		// even if the plugin did not wait for the answer
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reachPeriod)
		defer cancel()
		_ = r.tell(ctx, event{kind: pluginRefused, resource: resource, problem: why})
	}
	return nil, errors.New(why)
}

// admit hands a link to the loop. A reachable plugin must first say which calls it wants; in strict
// mode it must be reachable.
func (r registrar) admit(ctx context.Context, l *link) error {
	err := r.meet(ctx, l)
	if err == nil {
		err = r.tell(ctx, event{kind: linkRegistered, link: l})
	}
	if err != nil {
		l.conn.HangUp()
	}
	return err
}

// meet asks a plugin for its options, if it already serves.
func (r registrar) meet(ctx context.Context, l *link) error {
	if r.cfg.Strict {
		began := time.Now()
		if err := l.connect(ctx, r.cfg.Deadlines.Dial); err != nil {
			l.called(r.metrics, rpcDial, time.Since(began), err)
			return fmt.Errorf("%w; serve the socket before registering", err)
		}
	} else if !l.reach(ctx) {
		return nil
	}
	options, err := l.askOptions(ctx, r.metrics, r.cfg.Deadlines.Options)
	if err != nil {
		return fmt.Errorf("failed to get device plugin options: %w; a plugin has to answer "+
			"GetDevicePluginOptions at once", err)
	}
	l.behavior.asked = &options
	return nil
}

func (r registrar) tell(ctx context.Context, e event) error {
	if !await.Send(ctx, r.events, e) {
		return ctx.Err()
	}
	return nil
}

// accept checks a registration and makes its link.
func accept(cfg Config, req *v1beta1.RegisterRequest) (*link, error) {
	dir := cfg.Dirs.Plugins
	if err := CheckRequest(dir, req); err != nil {
		return nil, err
	}
	l, err := newLink(req.GetResourceName(), filepath.Join(dir, req.GetEndpoint()), ByRegister, cfg)
	if err != nil {
		return nil, err
	}
	l.behavior.introduced = req.GetOptions()
	return l, nil
}

// CheckRequest returns the fault of a Register call for a plugin in dir, as a *RequestError. The
// texts are the kubelet's where it has one.
func CheckRequest(dir string, req *v1beta1.RegisterRequest) error {
	if !slices.Contains(v1beta1.SupportedVersions[:], req.GetVersion()) {
		return &RequestError{PartVersion, fmt.Sprintf("requested API version %q is not supported "+
			"by kubelet. Supported version is %q", req.GetVersion(), v1beta1.SupportedVersions)}
	}
	if err := checkName(req.GetResourceName()); err != nil {
		return err
	}
	endpoint := req.GetEndpoint()
	switch {
	case endpoint == "." || endpoint == ".." || filepath.Base(endpoint) != endpoint:
		return &RequestError{PartEndpoint, fmt.Sprintf("the endpoint %q is invalid: give the name "+
			"of the plugin's socket in the device plugin directory, without a path", endpoint)}
	case endpoint == SocketName:
		return &RequestError{PartEndpoint, fmt.Sprintf("the endpoint %q is invalid: it is the "+
			"registration socket itself", endpoint)}
	}
	return checkSocketPath(endpoint, filepath.Join(dir, endpoint))
}

// RequestError says which part of a registration is wrong, and why.
type RequestError struct {
	Part RequestPart
	What string
}

func (e *RequestError) Error() string { return e.What }

// RequestPart is a part of a registration.
type RequestPart string

// Parts of a registration that can be wrong.
const (
	PartVersion  RequestPart = "version"
	PartResource RequestPart = "resource name"
	PartEndpoint RequestPart = "endpoint"
)

// checkSocketPath checks that an endpoint, whose full path is path, can be dialled.
func checkSocketPath(endpoint, path string) error {
	if strings.ContainsRune(path, 0) || len(path) > socket.MaxPath {
		return &RequestError{PartEndpoint, fmt.Sprintf("the endpoint %q is invalid: with the "+
			"directory it has %d bytes, unix sockets allow %d", endpoint, len(path),
			socket.MaxPath)}
	}
	return nil
}

// checkName checks a resource name; the error has the kubelet's words and what to do.
func checkName(name string) error {
	if podspec.IsExtended(name) {
		return nil
	}
	return &RequestError{PartResource, fmt.Sprintf("the ResourceName %q is invalid: choose a name "+
		"like vendor.com/device, with a domain that is not kubernetes.io", name)}
}
