package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/deviceplugin/gpu/mock"
	"github.com/numalet/numalet/internal/await"
)

// TestCtl: orders reach the plugin's machine, and what is wrong with one is the command's error.
func TestCtl(t *testing.T) {
	machine, err := mock.Open("dgxh100")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ng-") // a socket's path has little room
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path, rig := filepath.Join(dir, "o"), mock.New(machine)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- rig.Serve(ctx, path) }()
	for {
		if _, err := os.Stat(path); err == nil {
			break
		}
		await.For(ctx, 5*time.Millisecond)
	}
	for args, want := range map[string]string{
		"ecc 3 2":     "",
		"mig 0 on":    "",
		"ecc 9 2":     "want a GPU, 0 to 7",
		"explode 3":   `there is no order "explode"; there are`,
		"remap 1 mad": "want pending or failed or done",
		"":            "name an order, such as",
	} {
		_, err := output(t, nil, append([]string{"ctl", "--mock-orders", path}, strings.Fields(args)...)...)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	if _, err := output(t, nil, "ctl", "ecc", "3", "2"); err == nil || !strings.Contains(err.Error(), "--mock-orders") {
		t.Errorf("without a socket: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := output(t, nil, "ctl", "--mock-orders", path, "load"); err == nil ||
		!strings.Contains(err.Error(), "no plugin listens on "+path) {
		t.Errorf("without a plugin: %v", err)
	}
}

// absentDriver is the driver of a node without GPUs.
type absentDriver struct{}

func (absentDriver) Open() (gpu.Session, error) {
	return nil, fmt.Errorf("%w: nvmlInit: library not found", gpu.ErrNoDriver)
}

// TestNoDriver: without NVIDIA's driver the error says so, and what there is without one.
func TestNoDriver(t *testing.T) {
	_, err := nodeDriver{absentDriver{}}.Open()
	const want = "the NVIDIA driver is not there: nvmlInit: library not found (on a node without GPUs --mock MACHINE"
	if !errors.Is(err, gpu.ErrNoDriver) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
