package devicemanager

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
	"github.com/numalet/numalet/internal/oneline"
)

// QuestionDeadline bounds each question for reasons or places: the list of devices waits for it.
const QuestionDeadline = time.Second

// Bounds of a question for reasons: its deadline, and the number of devices.
const (
	reasonsDeadline = QuestionDeadline
	mostReasons     = 256
)

// Reasons holds, for people, the causes of unhealthy devices.
type Reasons struct {
	ByID map[string]string
	// Awaited: the plugin is being asked.
	Awaited bool
}

// Reason returns, for people, why a plugin calls a device unhealthy; empty if it does not say.
func (i Inventory) Reason(resource, id string) string { return i.Resources[resource].Reasons.ByID[id] }

// reasons asks why devices are unhealthy; nil if the plugin does not say.
func (c *connection) reasons(ctx context.Context, s linkSettings, ids []string) map[string]string {
	asking, cancel := context.WithTimeout(ctx, reasonsDeadline)
	defer cancel()
	began := time.Now()
	resp, err := lifecyclev1.NewLifecycleClient(c.conn).Reasons(asking,
		&lifecyclev1.ReasonsRequest{DeviceIds: ids})
	if ctx.Err() != nil {
		return nil
	}
	c.called(s.metrics, rpcReasons, time.Since(began), err)
	if err != nil {
		klog.FromContext(ctx).Info("Device plugin does not say why devices are unhealthy",
			"devices", Few(ids), "err", err)
		return nil
	}
	out := map[string]string{}
	for _, id := range ids {
		if why := oneline.Of(resp.GetReasons()[id]); why != "" {
			out[id] = why
		}
	}
	return out
}
