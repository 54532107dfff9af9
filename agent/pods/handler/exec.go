package handler

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	criclient "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	utilexec "k8s.io/utils/exec"

	"github.com/numalet/numalet/cri"
)

// command runs a probe's command. The runtime ends it at its timeout.
func (h *Handlers) command(ctx context.Context, p *v1.Probe, t Target) (Outcome, error) {
	words, err := cri.StaticCommand(t.Container, p.Exec.Command)
	if err != nil {
		return Outcome{}, err
	}
	output, err := h.exec(ctx, t.ID, words, time.Duration(p.TimeoutSeconds)*time.Second)
	var exit utilexec.ExitError
	switch {
	case err == nil:
		return Outcome{Success, output}, nil
	case errors.As(err, &exit):
		return Outcome{Failure, output}, nil
	case errors.Is(err, criclient.ErrCommandTimedOut):
		return Outcome{Failure, err.Error()}, nil
	default:
		return Outcome{}, err
	}
}

// exec runs a command in a container and returns the beginning of its output.
func (h *Handlers) exec(ctx context.Context, id string, words []string, timeout time.Duration) (
	string, error) {
	quiet := klog.NewContext(ctx, klog.New(nil)) // the caller reports the error
	out, errs, err := h.cfg.Runtime.ExecSync(quiet, id, words, timeout)
	out = out[:min(len(out), maxOutput)]
	errs = errs[:min(len(errs), maxOutput-len(out))]
	return string(out) + string(errs), err
}
