package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// SocketName is the name of the registration socket in the device plugin directory.
const SocketName = "kubelet.sock"

// maxSocketPath is the longest path that a unix socket can have (sun_path in unix(7), without the
// closing zero byte).
const maxSocketPath = 107

// listen removes the sockets in dir and binds the registration socket. Other files and
// directories stay.
func listen(ctx context.Context, dir string) (net.Listener, error) {
	path := filepath.Join(dir, SocketName)
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("device plugin socket %s: the path has %d bytes, unix sockets allow %d: "+
			"choose a shorter root directory", path, len(path), maxSocketPath)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make device plugin directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read device plugin directory: %w", err)
	}
	for _, entry := range entries {
		if entry.Type()&fs.ModeSocket == 0 {
			continue
		}
		err := os.Remove(filepath.Join(dir, entry.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove old device plugin socket: %w", err)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for device plugins: %w", err)
	}
	return listener, nil
}

// serve answers registrations until ctx is done, and returns when no handler is left.
func (p *Plugins) serve(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	v1beta1.RegisterRegistrationServer(server, registrar{plugins: p, log: klog.FromContext(ctx)})
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve device plugin registration: %w", err)
	}
	return nil
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
	if !IsExtendedResource(req.GetResourceName()) {
		return nil, fmt.Errorf("the ResourceName %q is invalid", req.GetResourceName())
	}
	endpoint := req.GetEndpoint()
	socket := filepath.Join(p.cfg.Dir, endpoint)
	switch {
	case endpoint == "." || endpoint == ".." || filepath.Base(endpoint) != endpoint:
		return nil, fmt.Errorf("the endpoint %q is invalid: give the name of the plugin's socket "+
			"in the device plugin directory, without a path", endpoint)
	case endpoint == SocketName:
		return nil, fmt.Errorf("the endpoint %q is invalid: it is the registration socket itself",
			endpoint)
	}
	if err := checkSocketPath(endpoint, socket); err != nil {
		return nil, err
	}
	return newLink(req.GetResourceName(), socket, p.cfg.Deadlines)
}

// checkSocketPath checks that an endpoint, of which socket is the whole path, can be dialled.
func checkSocketPath(endpoint, socket string) error {
	if strings.ContainsRune(socket, 0) || len(socket) > maxSocketPath {
		return fmt.Errorf("the endpoint %q is invalid: with the directory it has %d bytes, "+
			"unix sockets allow %d", endpoint, len(socket), maxSocketPath)
	}
	return nil
}

// IsExtendedResource tells whether name is that of an extended resource: a qualified name with a
// domain other than kubernetes.io, short enough to be a quota item ("requests.<name>").
func IsExtendedResource(name string) bool {
	const quota = "requests."
	return strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") &&
		!strings.HasPrefix(name, quota) && len(validation.IsQualifiedName(quota+name)) == 0
}
