package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/topology/podspec"
)

// errSocketGone ends a link of the plugin registry whose socket was removed.
var errSocketGone = errors.New("its socket in the plugin registry was removed")

// watch admits the plugins of the plugin registry until ctx is done: device plugins itself, others
// through Dirs.Others.
func (r registrar) watch(ctx context.Context) error {
	if r.cfg.Dirs.Registry == "" {
		return nil
	}
	handlers := map[string]watcher.Handler{}
	maps.Copy(handlers, r.cfg.Dirs.Others)
	handlers[registerapi.DevicePlugin] = r.takeIn
	w, err := watcher.New(watcher.Config{
		Dir:       r.cfg.Dirs.Registry,
		Deadlines: r.cfg.Deadlines.Registry,
		Stats:     r.cfg.Stats,
		Registry:  r.cfg.Registry,
		Handlers:  handlers,
		Called: func(found watcher.Plugin, rpc string, took time.Duration, err error) {
			if found.Type != "" && found.Type != registerapi.DevicePlugin {
				return
			}
			if !podspec.IsExtended(found.Name) { // it would only waste memory
				found.Name = ""
			}
			r.metrics.called(found.Name, rpc, took, err)
		},
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// takeIn registers a plugin that the watcher found. As with Register, its link dials it later.
func (r registrar) takeIn(ctx context.Context, found watcher.Plugin) (*watcher.Membership, error) {
	l, err := r.register(ctx, found.Name, found.Endpoint,
		func() (*link, error) { return r.acceptFound(found) })
	if err != nil {
		return nil, err
	}
	return &watcher.Membership{
		Leave: func() { l.leave(errSocketGone) }, Ended: l.ended,
		Unheard: func(err error) { l.tellOf(ctx, l.behavior.unheard(err)) },
	}, nil
}

// acceptFound is accept for a plugin of the plugin registry.
func (r registrar) acceptFound(found watcher.Plugin) (*link, error) {
	if err := CheckFound(found); err != nil {
		return nil, err
	}
	return newLink(found.Name, filepath.Clean(found.Endpoint), ByRegistry, r.cfg)
}

// CheckFound returns the fault of what a plugin in the plugin registry says about itself, as a
// *RequestError. Its endpoint may be anywhere.
func CheckFound(found watcher.Plugin) error {
	if !slices.Contains(found.Versions, v1beta1.Version) {
		return &RequestError{PartVersion, fmt.Sprintf("manager version, %s, is not among plugin "+
			"supported versions %v", v1beta1.Version, found.Versions)}
	}
	if err := checkName(found.Name); err != nil {
		return err
	}
	if !filepath.IsAbs(found.Endpoint) {
		return &RequestError{PartEndpoint, fmt.Sprintf("the endpoint %q is invalid: give the path "+
			"of the plugin's socket, or nothing if it is the one in the plugin registry",
			found.Endpoint)}
	}
	return checkSocketPath(found.Endpoint, filepath.Clean(found.Endpoint))
}
