package runtimeup

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/complaint"
)

// PodCIDR tells the runtime which addresses its pods get, for network plugins whose configuration
// the runtime writes.
type PodCIDR struct {
	// Want returns the range, or an IPv4 and an IPv6 range separated by a comma; "": not known.
	Want func() string
	Tell func(ctx context.Context, cidr string) error

	// Look owns the fields below.
	set   string
	wrong complaint.Complaint[string]
}

// Look tells the runtime a range that it was not told yet. It is called again and again: a range
// may be another when the node's object is known, and a call may fail. A runtime without the call
// has no use for the range.
func (p *PodCIDR) Look(ctx context.Context) error {
	want := p.Want()
	if want == "" || want == p.set {
		return nil
	}
	err := p.Tell(ctx, want)
	if status.Code(err) == codes.Unimplemented {
		err = nil
	}
	if p.wrong.Begins(complaint.Of(err)) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "The runtime was not told which addresses pods get; it is "+
			"tried again", "podCIDR", want)
	}
	if err == nil {
		klog.FromContext(ctx).Info("Told the runtime which addresses pods get", "podCIDR", want)
		p.set = want
	}
	return nil
}
