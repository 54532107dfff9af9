package discover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/jaypipes/ghw"
	"github.com/jaypipes/ghw/pkg/snapshot"
)

// Snapshot captures the machine and writes a ghw snapshot (.tar.gz), which Open reads. Of ghw's
// content it takes CPUs, nodes, memory and PCI, but no disks, networks or mounts: nothing that
// names the host or its users. With a root other than "/" it packs that tree as it is.
func Snapshot(ctx context.Context, w io.Writer, root string) (err error) {
	ctx = ghw.WithLogger(slog.New(slog.DiscardHandler))(ctx)
	if root != "" && filepath.Clean(root) != "/" {
		return pack(ctx, w, root)
	}
	dir, err := os.MkdirTemp("", "numalet-snapshot-")
	if err != nil {
		return fmt.Errorf("capture machine: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	patterns, err := capturePatterns(ctx)
	if err == nil {
		err = snapshot.CopyFilesInto(ctx, patterns, dir, nil)
	}
	if err != nil {
		return fmt.Errorf("capture machine: %w", err)
	}
	return pack(ctx, w, dir)
}

// capturePatterns returns what to copy: ghw's patterns, and the lists of CPUs that these lack.
func capturePatterns(ctx context.Context) ([]string, error) {
	patterns := []string{
		"/" + cpuDir + "/online", "/" + cpuDir + "/offline",
		"/" + cpuDir + "/present", "/" + cpuDir + "/possible", "/" + cpuDir + "/isolated",
		"/" + cpuDir + "/cpu*/online",
		"/sys/kernel/mm/hugepages/hugepages-*/*",
	}
	for _, p := range snapshot.ExpectedCloneStaticContent() {
		if strings.HasPrefix(p, "/sys/devices/system/") || p == "/proc/cpuinfo" ||
			p == "/proc/meminfo" {
			patterns = append(patterns, p)
		}
	}
	if _, err := os.Stat("/" + pciDir); err != nil {
		return patterns, nil
	}
	pci, err := snapshot.ExpectedClonePCIContent(ctx)
	return append(patterns, pci...), err
}

func pack(ctx context.Context, w io.Writer, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, cpuDir)); err != nil {
		return fmt.Errorf("capture machine: %w", err)
	}
	out := &firstError{w: w}
	err := snapshot.PackWithWriter(ctx, out, dir)
	if err = errors.Join(err, out.err); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// firstError records a failed write: ghw drops write errors when it closes the archive.
type firstError struct {
	w   io.Writer
	err error
}

func (f *firstError) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err != nil && f.err == nil {
		f.err = err
	}
	return n, err
}
