package devicemanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"k8s.io/klog/v2"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/internal/oneline"
)

// PreferredRequest holds the arguments of GetPreferredAllocation for one container.
type PreferredRequest struct {
	Resource string
	// Available lists the ids to choose from, in natural order. MustInclude is the part of them
	// that the container is certain to get.
	Available, MustInclude []string
	// Size is the wanted number of ids, MustInclude included.
	Size int
}

// Preferred calls GetPreferredAllocation. The answer is advice: ids holds its usable part, and an
// error, even beside ids, says what is wrong with it. Choose fills the gaps.
func (p *Plugins) Preferred(ctx context.Context, req PreferredRequest) (ids []string, err error) {
	c, err := p.call(ctx, rpcPreferred, req.Resource, p.cfg.Deadlines.Preferred)
	if err != nil {
		return nil, err
	}
	defer func() { c.done(err) }()
	resp, err := c.client.GetPreferredAllocation(c.ctx, &v1beta1.PreferredAllocationRequest{
		ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs:   req.Available,
			MustIncludeDeviceIDs: req.MustInclude,
			AllocationSize:       int32(req.Size),
		}},
	}, c.options()...)
	if err = c.unanswered(ctx, err); err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	if len(resp.GetContainerResponses()) == 0 {
		return nil, &AnswerError{"its preference names no container"}
	}
	return req.sift(resp.GetContainerResponses()[0].GetDeviceIDs(),
		p.current.Load().inventory.Resources[req.Resource])
}

// Allocate calls Allocate for one container and returns what the container needs to use the
// devices. It returns an error of the plugin as gRPC has it, in one line, a *CallError if
// the plugin did not answer, and an *AnswerError if the answer cannot be used.
func (p *Plugins) Allocate(ctx context.Context, resource string, ids []string) (
	answer *v1beta1.ContainerAllocateResponse, err error) {
	c, err := p.call(ctx, rpcAllocate, resource, p.cfg.Deadlines.Allocate)
	if err != nil {
		return nil, err
	}
	var odd error // what is wrong with an answer that is used nevertheless
	defer func() {
		p.metrics.allocations.WithLabelValues(resource).Observe(time.Since(c.began).Seconds())
		c.done(cmp.Or(err, odd))
	}()
	resp, err := c.client.Allocate(c.ctx, &v1beta1.AllocateRequest{
		ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: ids}},
	}, c.options(grpc.MaxCallRecvMsgSize(maxAllocateBytes))...)
	if isTooLong(err) {
		return nil, &AnswerError{fmt.Sprintf("its answer to Allocate has more than %d bytes: say "+
			"less for each container", maxAllocateBytes)}
	}
	if err = c.unanswered(ctx, err); err != nil {
		return nil, err
	}
	if n := len(resp.GetContainerResponses()); n > 1 {
		klog.FromContext(ctx).Info("Device plugin answered Allocate for more containers than the "+
			"one that it was asked about; the first answer counts", "resource", resource,
			"answers", n, "devices", Few(ids))
		odd = &AnswerError{fmt.Sprintf("it answered for %d containers, and was asked about one; "+
			"the first answer counts", n)}
	}
	if answer, err = answerOf(resp); err != nil {
		return nil, err
	}
	if flaws := slices.Concat(AnswerFlaws(answer), AnswerOddities(answer)); len(flaws) > 0 {
		odd = &AnswerError{fmt.Sprintf("its answer for %s is given to the runtime as it is, and: %s",
			Few(ids), oneline.Of(strings.Join(flaws, "; ")))}
		klog.FromContext(ctx).Info("Device plugin answered Allocate with what runtimes refuse or change",
			"resource", resource, "endpoint", p.Endpoint(resource), "explanation", odd.Error())
	}
	return answer, nil
}

// Bounds of an answer to Allocate: the agent keeps it, writes it to disk and passes it to the
// runtime whole.
const (
	maxAllocateBytes   = 1 << 20
	maxAllocateEntries = 10_000
)

// answerOf returns the answer for the only container of the request.
func answerOf(resp *v1beta1.AllocateResponse) (*v1beta1.ContainerAllocateResponse, error) {
	if len(resp.GetContainerResponses()) == 0 || resp.GetContainerResponses()[0] == nil {
		return nil, &AnswerError{fmt.Sprintf("no containers return in allocation response %s",
			oneline.Of(resp.String()))}
	}
	a := resp.GetContainerResponses()[0]
	entries := len(a.GetEnvs()) + len(a.GetMounts()) + len(a.GetDevices()) +
		len(a.GetAnnotations()) + len(a.GetCdiDevices())
	if entries > maxAllocateEntries {
		return nil, &AnswerError{fmt.Sprintf("its answer to Allocate has %d variables, mounts, "+
			"devices, annotations and CDI devices, and may have %d: say less for each container",
			entries, maxAllocateEntries)}
	}
	return a, nil
}

// PreStart calls PreStartContainer. Options.PreStart says whether the plugin wants the call.
func (p *Plugins) PreStart(ctx context.Context, resource string, ids []string) (err error) {
	c, err := p.call(ctx, rpcPreStart, resource, p.cfg.Deadlines.PreStart)
	if errors.Is(err, errUnknownPlugin) {
		return fmt.Errorf("endpoint not found in cache for a registered resource: %s", resource)
	}
	if err != nil {
		return err
	}
	defer func() { c.done(err) }()
	_, err = c.client.PreStartContainer(c.ctx,
		&v1beta1.PreStartContainerRequest{DevicesIds: ids}, c.options()...)
	if err = c.unanswered(ctx, err); err != nil {
		return fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
	}
	return nil
}

// AllocateDeadline returns the time that a plugin has to answer Allocate.
func (p *Plugins) AllocateDeadline() time.Duration { return p.cfg.Deadlines.Allocate }

// PreferredDeadline returns the time that a plugin has to answer GetPreferredAllocation.
func (p *Plugins) PreferredDeadline() time.Duration { return p.cfg.Deadlines.Preferred }

// Endpoint returns the name of the socket of the plugin that serves a resource, "" if none does.
func (p *Plugins) Endpoint(resource string) string {
	if l := p.current.Load().links[resource]; l != nil {
		return l.name()
	}
	return ""
}

// call is one call to a plugin, with its deadline. Its maker calls done with the outcome.
type call struct {
	ctx      context.Context
	rpc      string
	deadline time.Duration
	conn     *socket.Conn
	client   v1beta1.DevicePluginClient
	began    time.Time
	done     func(error)
	// header and trailer arrive with the answer.
	header, trailer metadata.MD
}

// options adds the gRPC options that record header and trailer, which unanswered needs.
func (c *call) options(more ...grpc.CallOption) []grpc.CallOption {
	return append(more, grpc.Header(&c.header), grpc.Trailer(&c.trailer))
}

var errUnknownPlugin = errors.New("unknown Device Plugin")

// call prepares a call to the plugin that serves a resource.
func (p *Plugins) call(ctx context.Context, rpc, resource string, deadline time.Duration) (
	call, error) {
	v := p.current.Load()
	l := v.links[resource]
	if l == nil {
		return call{}, fmt.Errorf("%w %s", errUnknownPlugin, resource)
	}
	if r := v.inventory.Resources[resource]; !r.Connected || !l.conn.Enter() {
		return call{}, &StoppedError{Endpoint: cmp.Or(l.socket, resource), Problem: r.Problem}
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	c := call{
		ctx: ctx, rpc: rpc, deadline: deadline, conn: l.conn, client: l.client(),
		began: time.Now(),
	}
	c.done = func(err error) {
		cancel()
		l.called(p.metrics, rpc, time.Since(c.began), err)
		l.conn.Leave()
	}
	return c, nil
}
