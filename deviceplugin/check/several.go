package check

import (
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/oneline"
)

// absent returns the host paths in an answer that this machine does not have.
func absent(resp *v1beta1.AllocateResponse) (paths []string) {
	look := func(path string) {
		if _, err := os.Stat(path); os.IsNotExist(err) {
			paths = append(paths, path)
		}
	}
	for _, a := range resp.GetContainerResponses() {
		for _, d := range a.GetDevices() {
			look(d.GetHostPath())
		}
		for _, m := range a.GetMounts() {
			look(m.GetHostPath())
		}
	}
	return paths
}

// noNodes describes the devices of an answer that this machine has and that are no device nodes.
func noNodes(resp *v1beta1.AllocateResponse) (flaws []string) {
	for _, a := range resp.GetContainerResponses() {
		for _, d := range a.GetDevices() {
			info, err := os.Stat(d.GetHostPath())
			if err == nil && !info.IsDir() && info.Mode()&os.ModeDevice == 0 {
				flaws = append(flaws, fmt.Sprintf("%q is no device node", d.GetHostPath()))
			}
		}
	}
	return flaws
}

// unknownCDI returns the CDI devices of an answer that no CDI file in the directories has.
func unknownCDI(resp *v1beta1.AllocateResponse, dirs []string) (names []string, err error) {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("read CDI files: %w", err)
	}
	for _, a := range resp.GetContainerResponses() {
		for _, d := range a.GetCdiDevices() {
			if cache.GetDevice(d.GetName()) == nil {
				names = append(names, d.GetName())
			}
		}
	}
	return names, nil
}

// alone returns the answer for each device allocated alone; nil where answers differ each time and
// cannot be compared.
func (b *bench) alone(ctx context.Context, ids []string) ([]*v1beta1.AllocateResponse, error) {
	out := make([]*v1beta1.AllocateResponse, len(ids))
	for i, id := range ids {
		resp, err := b.plugin().allocate(ctx, []string{id})
		if err != nil {
			return nil, fmt.Errorf("alone, %s: %s", id, said(err))
		}
		again, err := b.plugin().allocate(ctx, []string{id})
		if err == nil && sameAnswer(resp, again) {
			out[i] = resp
		}
	}
	return out, nil
}

// pair returns the first two devices and the answer for each alone; tells: their answers differ.
func (b *bench) pair(ctx context.Context) (ids []string, alone []*v1beta1.AllocateResponse,
	tells bool, err error) {
	ids = b.healthy()[:2]
	alone, err = b.alone(ctx, ids)
	tells = err == nil && alone[0] != nil && alone[1] != nil && !sameAnswer(alone[0], alone[1])
	return ids, alone, tells, err
}

func checkSeveral(ctx context.Context, b *bench) outcome {
	ids, alone, tells, err := b.pair(ctx)
	if err != nil {
		return failed("%v", err)
	}
	both, err := b.plugin().allocate(ctx, ids)
	if err != nil {
		return failed("for %s: %s", devicemanager.Few(ids), said(err))
	}
	for _, a := range both.GetContainerResponses() {
		if flaws := devicemanager.AnswerFlaws(a); len(flaws) > 0 {
			return failed("for %s: %s", devicemanager.Few(ids), oneline.Of(strings.Join(flaws, "; ")))
		}
	}
	if !tells {
		return passed("answers do not tell devices apart")
	}
	for i, id := range ids {
		if sameAnswer(both, alone[i]) {
			return failed("for %s it answered as for %s alone: {%s}", devicemanager.Few(ids), id,
				oneline.Cut(both.String(), 256))
		}
	}
	return passed("it differs from what each gets alone")
}

func checkTwoContainers(ctx context.Context, b *bench) outcome {
	ids, alone, tells, err := b.pair(ctx)
	if err != nil {
		return failed("%v", err)
	}
	resp, err := b.plugin().allocate(ctx, ids[:1], ids[1:])
	if err != nil {
		return failed("for %s and %s: %s", ids[0], ids[1], said(err))
	}
	all := resp.GetContainerResponses()
	if len(all) != len(ids) {
		return failed("asked for %s and %s it answered for %d", ids[0], ids[1], len(all))
	}
	for i, a := range all {
		one := &v1beta1.AllocateResponse{ContainerResponses: all[i : i+1]}
		if tells && !sameAnswer(one, alone[i]) {
			return failed("that of %s got {%s}, and alone {%s}", ids[i],
				oneline.Cut(a.String(), 256), oneline.Cut(alone[i].String(), 256))
		}
	}
	return passed("there were two")
}

func checkParallel(ctx context.Context, b *bench) outcome {
	ids := b.healthy()
	ids = ids[:min(mostParallel, len(ids))]
	alone, err := b.alone(ctx, ids)
	if err != nil {
		return failed("%v", err)
	}
	var group errgroup.Group
	for i, id := range ids {
		group.Go(func() error {
			resp, err := b.plugin().allocate(ctx, []string{id})
			switch {
			case err != nil:
				return fmt.Errorf("%s: %s", id, said(err))
			case alone[i] != nil && !sameAnswer(alone[i], resp):
				return fmt.Errorf("%s got {%s}, and alone {%s}", id,
					oneline.Cut(resp.String(), 256), oneline.Cut(alone[i].String(), 256))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return failed("%v", err)
	}
	return passed("%d calls at the same time had theirs", len(ids))
}
