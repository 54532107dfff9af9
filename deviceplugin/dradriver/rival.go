package dradriver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/await"
)

const (
	// rivalPatience bounds the wait for a plugin's answer.
	rivalPatience = time.Second
	// maxAsked bounds how many plugins are asked at the same time.
	maxAsked = 16
)

// findRival fails if a plugin in the kubelet's registry is a driver of that name. Sockets without an
// answer were left behind.
func findRival(ctx context.Context, registry, driver string) error {
	entries, err := os.ReadDir(registry)
	if err != nil {
		return fmt.Errorf("look for drivers: %w", err)
	}
	var sockets []string
	for _, e := range entries {
		if e.Type()&os.ModeSocket != 0 && !strings.HasPrefix(e.Name(), ".") {
			sockets = append(sockets, filepath.Join(registry, e.Name()))
		}
	}
	return await.Each(sockets, maxAsked, func(path string) error {
		found, err := watcher.Ask(ctx, path, rivalPatience, nil)
		if err != nil || found.Type != registerapi.DRAPlugin || found.Name != driver {
			return nil
		}
		return fmt.Errorf("a driver %s serves this node already, at %s: stop it (a vendor's is a "+
			"daemon set as a rule), or name this one with --dra-driver, and never have both offer "+
			"the same devices", driver, path)
	})
}
