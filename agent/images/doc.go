// Package images knows who may have which image. A node pulls an image once, with somebody's login,
// and then has it for all pods; the records say with which logins it was pulled, so that a pod that
// has none of them does not get it for nothing (KEP-2535).
//
// The records are files, in the kubelet's place and format, so that either agent goes on from what
// the other left:
//
//	image_manager/pulling/sha256-HASH  an image, by its name, that is being pulled
//	image_manager/pulled/sha256-HASH   an image, by the runtime's id, that was
//
// What is being pulled is written down first: of an image that is there when the agent was killed
// on the way nobody knows whose login it was, and so whoever wants it must pull it again.
package images
