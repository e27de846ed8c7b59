// Package aws is kamino.Provider for Auto Scaling groups of EC2 with a launch template.
//
// A pool is a group; its ID is aws:REGION/GROUP. An image version is an AMI named
// kamino-GROUP-VERSION; a snapshot is an EBS snapshot, which belongs to the image once one is made
// of it. There are no galleries and no image definitions. A pool refers to its image in one of two
// ways: its launch template names a parameter (resolve:ssm:NAME, which each launch resolves anew),
// then a promotion is one PutParameter; or it names an image, then a promotion is a new version of
// the template that differs in the image only, put in effect the way the group names its template.
//
// Nothing at EC2, Auto Scaling or SSM can be written on a condition: a revision is compared with a
// fresh read before each write, and what somebody else writes between the two is overwritten.
//
// Facts about AWS are from its documentation and service models; what is marked unverified was
// never seen on a real account.
package aws
