package drivers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/numalet/numalet/deviceplugin/dra"
)

// The methods of calls about claims.
const (
	Prepare   = "NodePrepareResources"
	Unprepare = "NodeUnprepareResources"
)

// Call is a call of an agent to a driver.
type Call struct {
	// Service and Method are as v1.DRAPlugin and NodePrepareResources.
	Service, Method string
	// Instance is the driver's instance that was called.
	Instance string
	Claims   []dra.Claim
	// CDI has the ids in the answer, and Devices the devices as pool/name, sorted, by claim.
	CDI, Devices map[types.UID][]string
	Began, Ended time.Time // Ended is zero during the call
	// Err: the whole call failed; Refused has the errors of single claims.
	Err     error
	Refused map[types.UID]string
}

// Trouble lets calls go wrong. Each function may block until the context ends; nil: none.
type Trouble struct {
	// Before: an error is the answer, and the driver does not get the call.
	Before func(context.Context, Call) error
	// After: the driver has answered, and an error is the answer in place of its own.
	After func(context.Context, Call) error
	// Answer returns what the agent gets in place of the driver's answer. It counts for calls that
	// have begun already, too, such as streams.
	Answer func(c Call, answer []byte) []byte
}

func meet(ctx context.Context, trouble func(context.Context, Call) error, c Call) error {
	if trouble == nil {
		return nil
	}
	return trouble(ctx, c)
}

// newCall reads a request. Both versions of the service have the same messages.
func newCall(fullMethod, instance string, request []byte) Call {
	service, method, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	c := Call{Service: service, Method: method, Instance: instance, Began: time.Now()}
	var asked interface{ GetClaims() []*drav1.Claim }
	switch method {
	case Prepare:
		asked = parsed(request, &drav1.NodePrepareResourcesRequest{})
	case Unprepare:
		asked = parsed(request, &drav1.NodeUnprepareResourcesRequest{})
	default:
		return c
	}
	for _, one := range asked.GetClaims() {
		c.Claims = append(c.Claims, dra.Claim{Namespace: one.GetNamespace(), Name: one.GetName(),
			UID: types.UID(one.GetUid())})
	}
	return c
}

// parsed fills a message. Bytes that are no such message leave it empty: then the call has no claims.
func parsed[M proto.Message](raw []byte, message M) M {
	if proto.Unmarshal(raw, message) != nil {
		proto.Reset(message)
	}
	return message
}

// answered adds the driver's answer.
func (c *Call) answered(answer []byte) {
	c.CDI, c.Devices = map[types.UID][]string{}, map[types.UID][]string{}
	c.Refused = map[types.UID]string{}
	switch c.Method {
	case Prepare:
		for uid, one := range parsed(answer, &drav1.NodePrepareResourcesResponse{}).GetClaims() {
			c.refuse(uid, one.GetError())
			of := types.UID(uid)
			for _, device := range one.GetDevices() {
				c.CDI[of] = append(c.CDI[of], device.GetCdiDeviceIds()...)
				c.Devices[of] = append(c.Devices[of], device.GetPoolName()+"/"+device.GetDeviceName())
			}
			slices.Sort(c.CDI[of])
			slices.Sort(c.Devices[of])
		}
	case Unprepare:
		for uid, one := range parsed(answer, &drav1.NodeUnprepareResourcesResponse{}).GetClaims() {
			c.refuse(uid, one.GetError())
		}
	}
}

func (c *Call) refuse(uid, why string) {
	if why != "" {
		c.Refused[types.UID(uid)] = why
	}
}

// Held returns the claims that are prepared after calls in this order, and those of which that is
// unknown, as a call about them has failed, or goes on.
func Held(calls []Call) (held, unknown map[types.UID]dra.Claim) {
	held, unknown = map[types.UID]dra.Claim{}, map[types.UID]dra.Claim{}
	for _, c := range calls {
		if c.Method != Prepare && c.Method != Unprepare {
			continue
		}
		for _, one := range c.Claims {
			_, refused := c.Refused[one.UID]
			switch {
			case c.Err != nil || refused || c.Ended.IsZero():
				unknown[one.UID] = one
			case c.Method == Prepare:
				held[one.UID] = one
				delete(unknown, one.UID)
			default:
				delete(held, one.UID)
				delete(unknown, one.UID)
			}
		}
	}
	return held, unknown
}

// Twice returns the devices that were prepared for a claim while another one may still have had
// them, after calls in this order to one driver.
func Twice(calls []Call) (out []string) {
	owner := map[string]dra.Claim{}
	for _, c := range calls {
		for _, one := range c.Claims {
			_, refused := c.Refused[one.UID]
			if c.Method == Unprepare && c.Err == nil && !refused && !c.Ended.IsZero() {
				maps.DeleteFunc(owner, func(_ string, is dra.Claim) bool { return is.UID == one.UID })
			}
			for _, device := range c.Devices[one.UID] {
				if is, had := owner[device]; had && is.UID != one.UID {
					out = append(out, fmt.Sprintf("%s for %s while %s has it", device, one.Name, is.Name))
				}
				owner[device] = one
			}
		}
	}
	return out
}
