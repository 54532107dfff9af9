package check

import (
	"path/filepath"
	"slices"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// heard finds the newest records of the checked plugin.
type heard struct {
	rec *recorder
	// resource is the plugin's; "" until it has registered, unless the configuration names it.
	resource string
	plugins  string // the device plugin directory
}

// introduced holds a registration of the plugin.
type introduced struct {
	way      devicemanager.Way
	resource string
	// endpoint is the path of its socket.
	endpoint string
	// found is the path of the socket in the plugin registry, if there is one.
	found   string
	options *v1beta1.DevicePluginOptions // of Register; nil if it sent none
	problem error                        // a *devicemanager.RequestError or nil
}

// introduction returns the newest registration; false if there is none.
func (h *heard) introduction() (introduced, bool) {
	for _, req := range slices.Backward(h.rec.requests()) {
		if h.concerns(req.GetResourceName()) {
			return introduced{
				way: devicemanager.ByRegister, resource: req.GetResourceName(),
				options:  req.GetOptions(),
				endpoint: filepath.Join(h.plugins, req.GetEndpoint()),
				problem:  devicemanager.CheckRequest(h.plugins, req),
			}, true
		}
	}
	for _, found := range slices.Backward(h.rec.introduced()) {
		if h.concerns(found.Name) {
			return introduced{
				way: devicemanager.ByRegistry, resource: found.Name, endpoint: found.Endpoint,
				found: found.Socket, problem: devicemanager.CheckFound(found),
			}, true
		}
	}
	return introduced{}, false
}

// introductions counts the registrations of the plugin.
func (h *heard) introductions() int {
	n := 0
	for _, req := range h.rec.requests() {
		n += one(h.concerns(req.GetResourceName()))
	}
	for _, found := range h.rec.introduced() {
		n += one(h.concerns(found.Name))
	}
	return n
}

// called returns the device manager's newest call of a method of the plugin; false if there is
// none.
func (h *heard) called(method string) (call, bool) {
	who, _ := h.introduction()
	to := who.endpoint
	if method == notifyCall {
		to = who.found
	}
	for _, c := range slices.Backward(h.rec.asked(byManager, method)) {
		if c.to == to {
			return c, true
		}
	}
	return call{}, false
}

// lists counts the lists that the plugin has sent to device managers.
func (h *heard) lists() (n int) {
	who, _ := h.introduction()
	for _, c := range h.rec.asked(byManager, listCall) {
		if c.to == who.endpoint {
			n += c.answers
		}
	}
	return n
}

// concerns reports whether the checked plugin serves the resource.
func (h *heard) concerns(resource string) bool {
	return h.resource == "" || h.resource == resource
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
