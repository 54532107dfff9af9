package dradriver

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/internal/await"
)

// goneAgain are the pauses between attempts to reach the API server.
var goneAgain = await.Pauses{First: time.Second, Last: time.Minute}

// releaseGone releases the claims of earlier runs that are gone: deleted, made anew under the same
// name, or not allocated any more. The kubelet unprepares the others. releaseGone returns when the
// API server has answered for each.
func (d *Driver) releaseGone(ctx context.Context) {
	left, _, err := d.store.load()
	if err != nil {
		d.cfg.Log("%v", err)
		return
	}
	for pause := goneAgain.First; len(left) > 0; pause = goneAgain.Next(pause) {
		for uid, r := range left {
			gone, err := d.isGone(ctx, r)
			if gone {
				d.cfg.Log("claim %s/%s (%s) is gone", r.Namespace, r.Name, uid)
				err = d.release(uid)
			}
			switch {
			case apierrors.IsForbidden(err): // the claim of no pod of this node, or one that is gone
				d.cfg.Log("claim %s/%s: its record is kept: %v", r.Namespace, r.Name, err)
			case err != nil:
				continue
			}
			delete(left, uid)
		}
		if len(left) > 0 && !await.For(ctx, pause) {
			return
		}
	}
}

func (d *Driver) isGone(ctx context.Context, r Record) (bool, error) {
	claim, err := d.cfg.Client.ResourceV1().ResourceClaims(r.Namespace).Get(ctx, r.Name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return claim.UID != r.UID || claim.Status.Allocation == nil, nil
}
