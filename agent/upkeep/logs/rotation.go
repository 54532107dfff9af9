package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/internal/files"
)

// patience bounds how long the runtime may take to open a log again.
const patience = 10 * time.Second

// Config says which logs are rotated, and when.
type Config struct {
	// Running returns the pods in the runtime. Only logs below LogsDir are rotated.
	Running func() []cri.Pod
	LogsDir string
	// Reopen makes the runtime open a container's log again.
	Reopen func(ctx context.Context, container string) error
	// MaxSize is the size in bytes at which a log is rotated. MaxFiles bounds the files of a log
	// including the current one, at least 2. Workers bounds concurrent rotations.
	MaxSize           int64
	MaxFiles, Workers int
}

// Rotation rotates logs.
type Rotation struct {
	cfg Config
	// failed has 1 for the containers whose logs could not be rotated in the last look. Only Look,
	// which one goroutine calls, uses it.
	failed map[string]int
}

// New returns a Rotation; Look rotates.
func New(c Config) *Rotation { return &Rotation{cfg: c} }

// log is the log of a running container.
type log struct {
	container, path string
	missing         bool
}

// Look rotates the logs that have reached their maximum size. Logs that failed in the last look come
// last, so a log that the runtime cannot open does not delay the others for long.
func (r *Rotation) Look(ctx context.Context) error {
	due, err := r.due()
	slices.SortStableFunc(due, func(a, b log) int {
		return cmp.Compare(r.failed[a.container], r.failed[b.container])
	})
	var group errgroup.Group
	group.SetLimit(max(r.cfg.Workers, 1))
	var mu sync.Mutex
	failed, errs := map[string]int{}, []error{err}
	for _, l := range due {
		group.Go(func() error {
			err := ctx.Err()
			if err == nil {
				err = r.rotate(ctx, l)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[l.container] = 1
				errs = append(errs, fmt.Errorf("rotate log %s: %w", l.path, err))
			}
			return nil
		})
	}
	_ = group.Wait() // every error is in errs
	r.failed = failed
	return errors.Join(errs...)
}

// due returns the logs that have reached their maximum size, and those missing after an interrupted
// rotation.
func (r *Rotation) due() (out []log, err error) {
	var errs []error
	for _, p := range r.cfg.Running() {
		for _, c := range p.Containers {
			if c.State != cri.ContainerRunning {
				continue
			}
			path := cmp.Or(c.From.LogPath, filepath.Join(
				cri.PodLogDir(r.cfg.LogsDir, p.Reference()),
				cri.ContainerLogPath(c.Name, c.Attempt)))
			if within, err := filepath.Rel(r.cfg.LogsDir, path); err != nil ||
				!filepath.IsLocal(within) {
				continue
			}
			info, err := os.Lstat(path)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				out = append(out, log{container: c.ID, path: path, missing: true})
			case err != nil:
				errs = append(errs, err)
			case files.Sole(info) && info.Size() >= r.cfg.MaxSize:
				out = append(out, log{container: c.ID, path: path})
			}
		}
	}
	return out, errors.Join(errs...)
}

// rotate renames the log, has it opened again, and tidies up its rotated files.
func (r *Rotation) rotate(ctx context.Context, l log) error {
	if l.missing {
		return r.reopen(ctx, l)
	}
	dir, err := files.OpenFolder(r.cfg.LogsDir, filepath.Dir(l.path))
	if err != nil {
		return err
	}
	defer dir.Close()
	base := filepath.Base(l.path)
	now, old := dir.Path(base), dir.Path(base+"."+time.Now().Format(logfiles.StampFormat))
	if err := moveNew(now, old); err != nil {
		return err
	}
	if err := r.reopen(ctx, l); err != nil {
		// Unless the runtime did open it and only its answer is missing.
		back := moveNew(old, now)
		if errors.Is(back, fs.ErrExist) {
			back = nil
		}
		return errors.Join(err, back)
	}
	return r.tidy(ctx, dir, base)
}

// reopen makes the runtime open the log. It is no error if the container is gone.
func (r *Rotation) reopen(ctx context.Context, l log) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := r.cfg.Reopen(ctx, l.container)
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// tidy reduces the files of the log to the allowed number.
func (r *Rotation) tidy(ctx context.Context, dir *files.Folder, base string) error {
	names, err := dir.Names(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	t := tidy(base, names, r.cfg.MaxFiles-1)
	var errs []error
	for _, name := range t.remove {
		errs = append(errs, os.Remove(dir.Path(name)))
	}
	for _, name := range t.compress {
		errs = append(errs, compress(ctx, dir, name))
	}
	return errors.Join(errs...)
}
