package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/topology/podspec"
)

// serve answers registrations until ctx is done. When somebody removes the socket it is made
// again, so that plugins can register and those that watch for it do.
func (p *Plugins) serve(ctx context.Context, s *socket.Listener) error {
	for s != nil {
		if err := p.serveOn(ctx, s); err != nil || ctx.Err() != nil {
			return err
		}
		klog.FromContext(ctx).Info("Device plugin socket was removed and is made again",
			"socket", s.Path())
		s = listenAgain(ctx, p.cfg.Dir)
	}
	return nil
}

// serveOn answers registrations until the socket is removed or ctx is done, and returns when no
// handler is left.
func (p *Plugins) serveOn(ctx context.Context, s *socket.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	v1beta1.RegisterRegistrationServer(server, registrar{plugins: p, log: klog.FromContext(ctx)})
	group.Go(func() error {
		untilGone(ctx, s)
		cancel()
		return nil
	})
	group.Go(func() error {
		defer context.AfterFunc(ctx, server.Stop)()
		if err := server.Serve(s); err != nil && ctx.Err() == nil {
			return fmt.Errorf("serve device plugin registration: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// registrar serves Registration. It answers as soon as the request is found valid: the plugin is
// dialled afterwards, by its link.
type registrar struct {
	v1beta1.UnimplementedRegistrationServer
	plugins *Plugins
	log     klog.Logger
}

func (r registrar) Register(
	ctx context.Context, req *v1beta1.RegisterRequest,
) (*v1beta1.Empty, error) {
	log := r.log.WithValues("resource", req.GetResourceName(), "endpoint", req.GetEndpoint())
	r.plugins.metrics.registrations.WithLabelValues(req.GetResourceName()).Inc()
	l, err := r.plugins.accept(req)
	if err != nil {
		log.Info("Device plugin registration refused", "reason", err.Error())
		return nil, err
	}
	if err := r.plugins.admit(ctx, l); err != nil {
		return nil, err
	}
	log.Info("Device plugin registered")
	return &v1beta1.Empty{}, nil
}

// admit hands a link to the loop.
func (p *Plugins) admit(ctx context.Context, l *link) error {
	select {
	case p.events <- event{kind: linkRegistered, link: l}:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), l.conn.Close())
	}
}

// accept checks a registration and makes its link. Texts are the kubelet's where it has one.
func (p *Plugins) accept(req *v1beta1.RegisterRequest) (*link, error) {
	if !slices.Contains(v1beta1.SupportedVersions[:], req.GetVersion()) {
		return nil, fmt.Errorf("requested API version %q is not supported by kubelet. "+
			"Supported version is %q", req.GetVersion(), v1beta1.SupportedVersions)
	}
	if !podspec.IsExtended(req.GetResourceName()) {
		return nil, badName(req.GetResourceName())
	}
	endpoint := req.GetEndpoint()
	path := filepath.Join(p.cfg.Dir, endpoint)
	switch {
	case endpoint == "." || endpoint == ".." || filepath.Base(endpoint) != endpoint:
		return nil, fmt.Errorf("the endpoint %q is invalid: give the name of the plugin's socket "+
			"in the device plugin directory, without a path", endpoint)
	case endpoint == SocketName:
		return nil, fmt.Errorf("the endpoint %q is invalid: it is the registration socket itself",
			endpoint)
	}
	if err := checkSocketPath(endpoint, path); err != nil {
		return nil, err
	}
	return newLink(req.GetResourceName(), path, p.cfg.Deadlines)
}

// checkSocketPath checks that an endpoint, of which path is the whole, can be dialled.
func checkSocketPath(endpoint, path string) error {
	if strings.ContainsRune(path, 0) || len(path) > socket.MaxPath {
		return fmt.Errorf("the endpoint %q is invalid: with the directory it has %d bytes, "+
			"unix sockets allow %d", endpoint, len(path), socket.MaxPath)
	}
	return nil
}

// badName is the refusal of a resource name: the kubelet's words and what to do.
func badName(name string) error {
	return fmt.Errorf("the ResourceName %q is invalid: choose a name like vendor.com/device, with "+
		"a domain that is not kubernetes.io", name)
}
