package csi

import (
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/oneline"
)

// pluginName is the kubelet's name of the type of volumes; it begins many of its messages.
const pluginName = "kubernetes.io/csi"

const (
	// maxName is the longest name of a driver that the API takes.
	maxName = 63
	// maxNodeID bounds what a driver may call the node, and maxSegments its topology.
	maxNodeID   = 256
	maxSegments = 64
)

// introduce checks a plugin that the watcher found, and returns the highest version that it serves.
func introduce(found watcher.Plugin) (*version.Version, error) {
	if err := checkName(found.Name); err != nil {
		return nil, err
	}
	highest, err := highestVersion(found)
	if err != nil {
		return nil, fmt.Errorf("validation failed for CSI Driver %s at endpoint %s: %w", found.Name,
			oneline.Of(found.Endpoint), err)
	}
	return highest, checkEndpoint(found)
}

// highestVersion is in the kubelet's words: only versions 1.x are known, and each is compatible.
func highestVersion(found watcher.Plugin) (*version.Version, error) {
	what := fmt.Sprintf("%s: ValidatePlugin for CSI driver %q failed.", pluginName, found.Name)
	if len(found.Versions) == 0 {
		return nil, fmt.Errorf("%s Plugin returned an empty list for supported versions", what)
	}
	highest, err := version.HighestSupportedVersion(found.Versions)
	if err != nil {
		return nil, fmt.Errorf("%s None of the versions specified %s are supported. err=%s", what,
			oneline.Of(fmt.Sprintf("%q", found.Versions)), oneline.Of(err.Error()))
	}
	return highest, nil
}

// checkName refuses names that no volume can have, or that would lead out of the directory of the
// driver's volumes.
func checkName(name string) error {
	wrong := validation.IsDNS1123Subdomain(strings.ToLower(name))
	if len(name) > maxName {
		wrong = []string{fmt.Sprintf("it has %d characters, and may have %d", len(name), maxName)}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("the name %q of the CSI driver is invalid, and no volume can name it: %s",
		oneline.Cut(name, 128), strings.Join(wrong, "; "))
}

// checkEndpoint refuses an endpoint that cannot be dialled.
func checkEndpoint(found watcher.Plugin) error {
	path := found.Endpoint
	if filepath.IsAbs(path) && len(path) <= socket.MaxPath && !strings.ContainsRune(path, 0) {
		return nil
	}
	return fmt.Errorf("the endpoint %q of CSI driver %s is invalid: give the absolute path of the "+
		"driver's socket, of at most %d bytes, or nothing if it is the one in the plugin registry",
		oneline.Of(path), found.Name, socket.MaxPath)
}
