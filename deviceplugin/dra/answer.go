package dra

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/numalet/numalet/internal/oneline"
)

// Bounds of an answer for one claim, which is kept, written to disk and given to the runtime. The
// API allows a claim 32 devices; the names are the longest that it allows.
const (
	maxDevices  = 1024
	maxCDI      = 4096 // all devices of the claim together
	maxRequests = 64   // of one device
	maxPool     = 253
	maxName     = 63
	maxRequest  = 2*63 + 1 // request/subrequest
	maxShare    = 64
	maxCDIName  = 1024
)

// outcome is either kind of answer.
type outcome interface{ GetError() string }

// outcomes returns an error for each claim that the driver did not serve, in the kubelet's words,
// and with it only for claims that were asked about: one answer for another claim is an error of
// the whole call.
func outcomes[A outcome](rpc string, claims []Claim, answers map[string]A) (
	map[types.UID]error, error) {
	errs := map[types.UID]error{}
	skipped := 0
	for _, c := range claims {
		if _, there := answers[string(c.UID)]; !there {
			skipped++
		}
	}
	for _, c := range claims {
		answer, there := answers[string(c.UID)]
		switch {
		case !there:
			errs[c.UID] = fmt.Errorf("%s skipped %d ResourceClaims", rpc, skipped)
		case answer.GetError() != "":
			errs[c.UID] = fmt.Errorf("%s failed for ResourceClaim %s: %s", rpc, c.Name,
				oneline.Of(answer.GetError()))
		default:
			errs[c.UID] = nil
		}
	}
	if len(errs) == len(answers)+skipped {
		return errs, nil
	}
	for uid := range answers {
		if _, asked := errs[types.UID(uid)]; !asked {
			return nil, fmt.Errorf("%s returned result for unknown claim UID %s", rpc,
				oneline.Cut(uid, 64))
		}
	}
	return errs, nil
}

// prepared returns the driver's answers by claim, each with its devices or an error.
func prepared(driver string, claims []Claim, resp *drav1.NodePrepareResourcesResponse) (
	map[types.UID]Answer, error) {
	errs, err := outcomes(rpcPrepare, claims, resp.GetClaims())
	if err != nil {
		return nil, err
	}
	out := map[types.UID]Answer{}
	for _, c := range claims {
		if errs[c.UID] != nil {
			out[c.UID] = Answer{Err: errs[c.UID]}
			continue
		}
		devices := resp.GetClaims()[string(c.UID)].GetDevices()
		if wrong := flaw(devices); wrong != "" {
			out[c.UID] = Answer{Err: &AnswerError{driver, c, wrong}}
			continue
		}
		out[c.UID] = Answer{Devices: devicesOf(devices)}
	}
	return out, nil
}

func devicesOf(devices []*drav1.Device) (out []Device) {
	for _, d := range devices {
		out = append(out, Device{
			Requests: d.GetRequestNames(), Pool: d.GetPoolName(), Name: d.GetDeviceName(),
			CDI: d.GetCdiDeviceIds(), ShareID: d.GetShareId(),
		})
	}
	return out
}

// flaw says why the devices of a claim cannot be used; "": they can. Names that are missing can:
// the kubelet does not look at them.
func flaw(devices []*drav1.Device) string {
	if n := len(devices); n > maxDevices {
		return fmt.Sprintf("it has %d devices, and may have %d", n, maxDevices)
	}
	ids := 0
	for _, d := range devices {
		if ids += len(d.GetCdiDeviceIds()); ids > maxCDI {
			return fmt.Sprintf("it has more than %d CDI device ids: name one for several devices "+
				"or edits", maxCDI)
		}
		if wrong := deviceFlaw(d); wrong != "" {
			return fmt.Sprintf("device %s of pool %s: %s", oneline.Cut(d.GetDeviceName(), 64),
				oneline.Cut(d.GetPoolName(), 64), wrong)
		}
	}
	return ""
}

func deviceFlaw(d *drav1.Device) string {
	if n := len(d.GetRequestNames()); n > maxRequests {
		return fmt.Sprintf("it names %d requests, and may name %d", n, maxRequests)
	}
	for _, one := range []struct {
		what, text string
		most       int
	}{
		{"pool's name", d.GetPoolName(), maxPool}, {"device's name", d.GetDeviceName(), maxName},
		{"share's id", d.GetShareId(), maxShare},
	} {
		if len(one.text) > one.most {
			return tooLong(one.what, one.text, one.most)
		}
	}
	for _, name := range d.GetRequestNames() {
		if len(name) > maxRequest {
			return tooLong("request's name", name, maxRequest)
		}
	}
	for _, id := range d.GetCdiDeviceIds() {
		if len(id) > maxCDIName {
			return tooLong("CDI device id", id, maxCDIName)
		}
		if _, _, _, err := parser.ParseQualifiedName(id); err != nil {
			return fmt.Sprintf("the CDI device id %q is not one like vendor.com/class=name: %s",
				oneline.Cut(id, 128), oneline.Of(err.Error()))
		}
	}
	return ""
}

func tooLong(what, text string, most int) string {
	return fmt.Sprintf("the %s %q has %d bytes, and may have %d", what, oneline.Cut(text, 64),
		len(text), most)
}
