package dra

import "k8s.io/apimachinery/pkg/types"

// Claim names a ResourceClaim in calls to a driver.
type Claim struct {
	Namespace, Name string
	UID             types.UID
}

// Device is a device that a driver has prepared.
type Device struct {
	// Requests are the claim's requests that the device is for; none: all of them.
	Requests []string
	// Pool and Name name the device in the driver's ResourceSlices.
	Pool, Name string
	// CDI lists the ids that containers get.
	CDI []string
	// ShareID tells shares of one device apart; "": it is not shared.
	ShareID string
}

// Answer holds what a driver said about one claim.
type Answer struct {
	Devices []Device
	// Err: the claim could not be prepared, or the driver did not mention it.
	Err error
}
