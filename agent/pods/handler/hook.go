package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/await"
)

// errNoHook: the API server accepts such a hook, which then fails when it is due.
var errNoHook = errors.New("invalid handler: a hook has one of exec, httpGet, sleep; " +
	"tcpSocket is not supported")

// ErrBrokenOff reports an interrupted sleep, in the kubelet's words.
var ErrBrokenOff = errors.New("container terminated before sleep hook finished")

// failed says in the kubelet's words why a hook failed.
func failed(what string, t Target, err error) error {
	pod := fmt.Sprintf("%s_%s(%s)", t.Pod.Name, t.Pod.Namespace, t.Pod.UID)
	return fmt.Errorf("%s for Container %q in Pod %q failed - error: %w", what, t.Container.Name, pod, err)
}

// Run runs a hook to its end, or until the context ends. fallback is the address of a server that
// was asked over TLS and answered only without; "" otherwise. The error may contain the container's
// secrets.
func (h *Handlers) Run(ctx context.Context, hook *v1.LifecycleHandler, t Target) (
	fallback string, err error) {
	switch {
	case hook.Exec != nil:
		output, err := h.exec(ctx, t.ID, hook.Exec.Command, 0)
		if err != nil {
			return "", fmt.Errorf("%w, message: %q",
				failed(fmt.Sprintf("Exec lifecycle hook (%v)", hook.Exec.Command), t, err), output)
		}
		return "", nil
	case hook.HTTPGet != nil:
		if fallback, err = h.notify(ctx, hook.HTTPGet, t); err != nil {
			return "", failed(fmt.Sprintf("HTTP lifecycle hook (%s)", hook.HTTPGet.Path), t, err)
		}
		return fallback, nil
	case hook.Sleep != nil:
		if !await.For(ctx, time.Duration(hook.Sleep.Seconds)*time.Second) {
			return "", failed(fmt.Sprintf("Sleep lifecycle hook (%d)", hook.Sleep.Seconds), t,
				ErrBrokenOff)
		}
		return "", nil
	default:
		return "", errNoHook
	}
}

// notify sends a request; any answer is a success. A server without TLS is asked again over plain
// HTTP, as it was before TLS was supported for hooks, and without the Authorization header.
func (h *Handlers) notify(ctx context.Context, a *v1.HTTPGetAction, t Target) (
	fallback string, err error) {
	request, err := h.request(ctx, a, t, "kube-lifecycle/")
	if err != nil {
		return "", err
	}
	err = h.send(request, h.transport(a))
	if err == nil || !strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return "", err
	}
	without := request.Clone(ctx)
	without.URL.Scheme = "http"
	without.Header.Del("Authorization")
	if h.send(without, h) != nil {
		return "", err
	}
	return request.URL.Host, nil
}

func (h *Handlers) send(r *http.Request, over http.RoundTripper) error {
	client := http.Client{Transport: over, CheckRedirect: stayOnHost}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	// the answer itself does not matter
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxOutput))
	return nil
}
