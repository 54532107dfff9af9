package crisim_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
)

// A pull beyond the caller's or the runtime's timeout fails and leaves no image.
func TestPullTimesOut(t *testing.T) {
	spec := &runtimeapi.ImageSpec{Image: "sim.local/large"}
	const short, long = 20 * time.Millisecond, time.Hour
	for name, tc := range map[string]struct {
		cfg    crisim.Config
		hang   bool
		caller time.Duration
	}{
		"the caller's, slow": {
			crisim.Config{Delays: map[string]time.Duration{"PullImage": long}}, false, short,
		},
		"the caller's, hung":  {crisim.Config{}, true, short},
		"the runtime's, hung": {crisim.Config{PullTimeout: short}, true, long},
		"the runtime's, slow": {
			crisim.Config{PullTimeout: short, Delays: map[string]time.Duration{"*": long}}, false, long,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tc.cfg)
			if tc.hang {
				r.must(r.server.SetFault(crisim.Fault{Method: "PullImage", Hang: true}))
			}
			ctx, cancel := context.WithTimeout(r.ctx, tc.caller)
			defer cancel()
			_, err := r.images.PullImage(ctx, spec, nil, nil)
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("the pull ended with %v", err)
			}
			got, err := r.images.ImageStatus(r.ctx, spec, false)
			if err != nil || got.GetImage() != nil {
				t.Errorf("after it there is %v (%v)", got.GetImage(), err)
			}
		})
	}
}
