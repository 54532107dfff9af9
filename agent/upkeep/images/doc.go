// Package images records which pods may use which image. A node pulls an image once, with
// one login, and then has it for all pods. The records say which logins it was pulled with,
// so that pods without such a login cannot use it (KEP-2535).
//
// The records are files in the kubelet's place and format, so that each agent can continue after
// the other:
//
//	image_manager/pulling/sha256-HASH  an image, by its name, that is being pulled
//	image_manager/pulled/sha256-HASH   an image, by the runtime's id, that was
//
// The intent is recorded before the pull. If the agent is killed during a pull and the image is
// present afterwards, it is not known whose login it came with, and every pod that wants the image
// must pull it again.
package images
