// Sweep removes what containerds in TMPDIR, and tests with cgroups of their own, have left on the
// machine. None of them may run any more.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
)

func main() {
	if err := sweep(os.TempDir()); err != nil {
		fmt.Fprintln(os.Stderr, "sweep:", err)
		os.Exit(1)
	}
}

func sweep(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	roots := map[string]bool{}
	for _, pattern := range []string{"n*", "n*/numalet-*/c"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern, "config.toml"))
		errs = append(errs, err)
		for _, file := range found {
			at := filepath.Dir(file)
			errs = append(errs, containerd.Sweep(ctx, containerd.Config{Dir: at}))
			if filepath.Base(at) == "c" { // a playground's, with a cgroup of its name
				roots["/"+filepath.Base(filepath.Dir(at))] = true
			}
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		found, err := filepath.Glob(filepath.Join(pattern, filepath.Base(dir)+"-*"))
		errs = append(errs, err)
		for _, group := range found {
			roots["/"+filepath.Base(group)] = true
		}
	}
	for root := range roots {
		errs = append(errs, cgroups.DeleteRoot(ctx, root))
	}
	return errors.Join(errs...)
}
