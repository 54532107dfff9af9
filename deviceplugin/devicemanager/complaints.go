package devicemanager

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/internal/oneline"
)

// behavior records complaints about a plugin: what works here but not with every agent, or costs
// more than needed.
type behavior struct {
	// complaints is shared by all registrations from one socket; nil for a resource that is only known
	// from before.
	complaints atomic.Pointer[complaints]
	// introduced holds the options of its Register call; nil: it sent none.
	introduced *v1beta1.DevicePluginOptions
	// asked holds the options that it gave before its registration was answered; its first session
	// takes them. nil: it was not asked.
	asked *Options
}

// complaintKind is something that a plugin should not do.
type complaintKind int

// The kinds of complaints, in the order in which they are listed.
const (
	registersOften complaintKind = iota
	optionsDiffer
	refusesNotice
	listsMuch
	repeatsLists
	flaps
	complaintKinds
)

// reason is the complaint's name in Complaint.Reason.
func (k complaintKind) reason() string {
	return [complaintKinds]string{"RegistersOften", "OptionsDiffer", "NoticeRefused", "LongList",
		"RepeatsLists", "Flapping"}[k]
}

// A plugin that exceeds one of these numbers within paceSpan registers, repeats its list or changes
// a device's health too often.
const (
	mostRegistrations = 10
	mostRepeats       = 60
	mostHealthChanges = 10 // of one device
	paceSpan          = time.Minute
	// kubeletList is the longest message in bytes that the kubelet reads: gRPC's default.
	kubeletList = 4 << 20
)

// complaints holds the complaints about a plugin. One about a frequency ends after that has dropped.
type complaints struct {
	mu   sync.Mutex
	said [complaintKinds]struct {
		text  string
		until time.Time // zero: it stays
	}
	registrations, losses, repeats pace
	healthChanges                  struct {
		began time.Time
		n     map[string]int // by device
	}
}

// pace counts events within a span.
type pace struct {
	began time.Time
	n     int
}

func (p *pace) add(now time.Time, n int) int {
	if now.Sub(p.began) > paceSpan {
		*p = pace{began: now}
	}
	p.n += n
	return p.n
}

// within returns the count of the current span.
func (p *pace) within(now time.Time) int {
	if now.Sub(p.began) > paceSpan {
		return 0
	}
	return p.n
}

// note sets the text of a complaint; "" ends it. It returns the text if that is new.
func (m *complaints) note(k complaintKind, text string) (news string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.noteLocked(k, text, time.Time{})
}

// noteLocked is note for a complaint that ends at until; zero: it stays.
func (m *complaints) noteLocked(k complaintKind, text string, until time.Time) (news string) {
	is := &m.said[k]
	if is.text == "" || !is.until.IsZero() && time.Now().After(is.until) {
		news = text
	}
	is.text, is.until = text, until
	return news
}

// lost counts a lost connection or an ended list.
func (m *complaints) lost(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.losses.add(now, 1)
}

// registered counts a registration. If the plugin is also lost about as often, the news says that
// it restarts.
func (m *complaints) registered(now time.Time) (news string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, losses := m.registrations.add(now, 1), m.losses.within(now)
	if n <= mostRegistrations {
		return ""
	}
	text := fmt.Sprintf("it registered more than %d times in a minute, and each time its list is read "+
		"anew: register when kubelet.sock is made, and not on a timer", mostRegistrations)
	if losses > n/2 {
		text = fmt.Sprintf("it registered more than %d times in a minute, since it restarts: its "+
			"connection ended %d times; its log says why", mostRegistrations, losses)
	}
	return m.noteLocked(registersOften, text, now.Add(2*paceSpan))
}

// listed judges a list of size bytes, which was sent so often after an equal one.
func (m *complaints) listed(now time.Time, size, repeated int) (news string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := ""
	if size > kubeletList {
		text = fmt.Sprintf("its list of devices (ListAndWatch) has more than %d MiB; it is read here, "+
			"but the kubelet reads no longer one, and has no devices then: list fewer devices, or "+
			"shorter ids", kubeletList>>20)
	}
	if news = m.noteLocked(listsMuch, text, time.Time{}); news != "" || repeated == 0 {
		return news
	}
	if m.repeats.add(now, repeated) <= mostRepeats {
		return ""
	}
	text = fmt.Sprintf("it sent the list that it had sent before (ListAndWatch) more than %d times in a "+
		"minute, and each is read and compared: send the list when a device has changed", mostRepeats)
	return m.noteLocked(repeatsLists, text, now.Add(2*paceSpan))
}

// healthChanged counts changes of devices' health.
func (m *complaints) healthChanged(now time.Time, devices []*Device) (news string) {
	if m == nil || len(devices) == 0 {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.healthChanges.began) > paceSpan {
		m.healthChanges.began, m.healthChanges.n = now, map[string]int{}
	}
	id := ""
	for _, d := range devices {
		if m.healthChanges.n[d.ID]++; m.healthChanges.n[d.ID] > mostHealthChanges {
			id = d.ID
		}
	}
	if id == "" {
		return ""
	}
	return m.noteLocked(flaps, fmt.Sprintf("the health of device %s changed more than %d times in a "+
		"minute (ListAndWatch), and is told once a second at most: send Unhealthy until the device "+
		"has been well for a while", oneline.Of(id), mostHealthChanges), now.Add(2*paceSpan))
}

// answered compares the options of the Register call with the answer to GetDevicePluginOptions.
func (c *behavior) answered(asked Options) (news string) {
	said := Options{
		Preferred: c.introduced.GetGetPreferredAllocationAvailable(),
		PreStart:  c.introduced.GetPreStartRequired(),
	}
	text := ""
	if asked.Released, asked.Reasons = said.Released, said.Reasons; said != asked {
		text = fmt.Sprintf("it registered with the options %s and answers GetDevicePluginOptions with "+
			"%s, which count: say the same in both", said, asked)
	}
	return c.complaints.Load().note(optionsDiffer, text)
}

// unheard judges a plugin whose NotifyRegistrationStatus failed with err.
func (c *behavior) unheard(err error) (news string) {
	return c.complaints.Load().note(refusesNotice, "it does not take NotifyRegistrationStatus ("+
		oneline.Of(err.Error())+"); it is served here, but the kubelet takes that for a registration "+
		"that failed, and begins anew with it: answer with &registerapi.RegistrationStatusResponse{}")
}

func (o Options) String() string {
	return fmt.Sprintf("{GetPreferredAllocationAvailable: %t, PreStartRequired: %t}", o.Preferred,
		o.PreStart)
}

// list returns the present complaints, in order.
func (m *complaints) list(now time.Time) (out []Complaint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for h, is := range m.said {
		if is.text != "" && (is.until.IsZero() || now.Before(is.until)) {
			out = append(out, Complaint{complaintKind(h).reason(), is.text})
		}
	}
	return out
}
