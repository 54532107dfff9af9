package dra

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/oneline"
)

// Services returns the gRPC services that a plugin may list as its versions. Of those of a plugin
// the first is used.
func Services() []string { return []string{drav1.DRAPluginService, drav1beta1.DRAPluginService} }

// HealthServices returns the optional services, of which the first that a plugin lists is used.
func HealthServices() []string {
	return []string{
		healthv1.DRAResourceHealthService, healthv1alpha1.DRAResourceHealthService,
	}
}

// introduction holds what an instance says of itself when it registers.
type introduction struct {
	driver, endpoint string
	// socket is the path of the socket in the plugin registry.
	socket   string
	versions []string
	// service is of Services, health of HealthServices or "".
	service, health string
}

// maxVersions bounds the list of versions that is kept of a plugin.
const maxVersions = 64

// introduce checks a plugin that the watcher found. The errors of services are the kubelet's, which
// looks at nothing else.
func introduce(found watcher.Plugin) (introduction, error) {
	in := introduction{
		driver: found.Name, endpoint: found.Endpoint, socket: found.Socket,
		versions: found.Versions[:min(len(found.Versions), maxVersions)],
	}
	if err := checkDriver(found.Name); err != nil {
		return in, err
	}
	var err error
	if in.service, err = serviceOf(in.versions); err != nil {
		return in, fmt.Errorf("invalid supported gRPC versions of DRA driver plugin %s at endpoint "+
			"%s: %w", in.driver, oneline.Of(in.endpoint), err)
	}
	for _, service := range HealthServices() {
		if in.health == "" && slices.Contains(in.versions, service) {
			in.health = service
		}
	}
	return in, checkEndpoint(in)
}

func serviceOf(versions []string) (string, error) {
	if len(versions) == 0 {
		return "", errors.New("empty list of supported gRPC services (aka supported versions)")
	}
	for _, service := range versions {
		if slices.Contains(Services(), service) {
			return service, nil
		}
	}
	return "", fmt.Errorf("none of services supported by the plugin (%s) are supported by the "+
		"kubelet (%q)", oneline.Of(fmt.Sprintf("%q", versions)), Services())
}

// checkDriver refuses names that no claim and no ResourceSlice can have.
func checkDriver(name string) error {
	wrong := validation.IsDNS1123Subdomain(name)
	if most := resourcev1.DriverNameMaxLength; len(name) > most {
		wrong = []string{fmt.Sprintf("it has %d characters, and may have %d", len(name), most)}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("the name %q of the DRA driver is invalid, and no claim can name it: %s",
		oneline.Cut(name, 128), strings.Join(wrong, "; "))
}

// checkEndpoint refuses an endpoint that cannot be dialled.
func checkEndpoint(in introduction) error {
	switch path := in.endpoint; {
	case !filepath.IsAbs(path):
		return fmt.Errorf("the endpoint %q of DRA driver plugin %s is invalid: give the path of "+
			"the plugin's socket, or nothing if it is the one in the plugin registry",
			oneline.Of(path), in.driver)
	case len(path) > socket.MaxPath || strings.ContainsRune(path, 0):
		return fmt.Errorf("the endpoint %q of DRA driver plugin %s is invalid: it has %d bytes, "+
			"unix sockets allow %d", oneline.Of(path), in.driver, len(path), socket.MaxPath)
	}
	return nil
}
