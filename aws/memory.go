package aws

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
)

// once returns the value that was read under the same key in this look of the engine, or reads it.
// Outside of a look it always reads. Concurrent callers of one key share one read: a plan looks at
// several pools in parallel.
//
// The cache belongs to a look and not to a time: even a cache of one second would answer an act's
// verification with what its look read. The context of an act has no cache.
func once[T any](ctx context.Context, key string, read func() (T, error)) (T, error) {
	seen := kamino.Seen(ctx)
	if seen == nil {
		return read()
	}
	have, _ := seen.LoadOrStore(key, &reading[T]{})
	r := have.(*reading[T])
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return r.value, nil
	}
	value, err := read()
	if err == nil {
		r.value, r.done = value, true
	}
	return value, err
}

// reading is a read of a look.
type reading[T any] struct {
	mu    sync.Mutex
	done  bool
	value T
}

// wideKey marks a look in which all groups of the Region were listed.
const wideKey = "wide"

// wide says whether a look is at all groups. Then it lists what belongs to them in one call for
// all, and asks for each donor by a filter: EC2 takes twice as many calls with one as without
// (https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html). A look at one pool asks
// for that pool's, by ID, which is seen first.
func wide(ctx context.Context) bool {
	seen := kamino.Seen(ctx)
	if seen == nil {
		return false
	}
	_, is := seen.Load(wideKey)
	return is
}

// recently is how old an answer may be on which nothing rests that is written: what deletes an
// image looks for its users afresh, and a refresh that somebody begins in the middle of a run
// shows at the next look.
const recently = 10 * time.Second

// recent answers a read from one of the last moments.
func recent[T any](k *known, now time.Time, key string, read func() (T, error)) (T, error) {
	return recentFor(k, recently, now, key, read)
}

// recentFor answers a read from one that is not older than an age.
func recentFor[T any](k *known, age time.Duration, now time.Time, key string, read func() (T, error)) (T, error) {
	k.mu.Lock()
	have, ok := k.recent[key]
	k.mu.Unlock()
	if ok && now.Sub(have.at) < age {
		return have.value.(T), nil
	}
	out, err := read()
	if err == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.recent[key] = answer{now, out}
	}
	return out, err
}

type answer struct {
	at    time.Time
	value any
}

// steadyFor is how long the facts of an instance count that only persons change: the size of its
// root, and what a shutdown from within does.
const steadyFor = time.Minute

// known is what does not change, or hardly.
type known struct {
	mu       sync.Mutex
	versions map[string]types.LaunchTemplateVersion // by template and number: a version never changes
	steady   map[string]steady                      // by instance
	imaged   map[string]bool                        // by snapshot that was made or met here: an image is made of it
	images   map[string]string                      // by name: the ID, which a name keeps as long as there is an image of it
	made     map[string]made                        // by volume: the last snapshot
	canaries map[string]launched                    // by canaryKey: the instance that was launched or met here, until it is terminated
	recent   map[string]answer
}

// made is a snapshot that was made here.
type made struct {
	snapshot string
	at       time.Time
}

// launched is the instance of a canary.
type launched struct {
	instance string
	at       time.Time // when it was launched here; zero: a list has shown it
}

// steady is what Instance tells besides DescribeInstances.
type steady struct {
	at       time.Time
	instance types.Instance
	disk     *types.Volume // nil: the root is no EBS volume
	shutdown string        // InstanceInitiatedShutdownBehavior
}

func newKnown() *known {
	return &known{versions: map[string]types.LaunchTemplateVersion{}, steady: map[string]steady{}, imaged: map[string]bool{},
		images: map[string]string{}, made: map[string]made{}, canaries: map[string]launched{}, recent: map[string]answer{}}
}

func (k *known) version(template, number string) (types.LaunchTemplateVersion, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.versions[template+"/"+number]
	return v, ok
}

func (k *known) keepVersion(template, number string, v types.LaunchTemplateVersion) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.versions[template+"/"+number] = v
}

// points says whether a version of a template is known that names a parameter.
func (k *known) points(template string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, v := range k.versions {
		if strings.HasPrefix(key, template+"/") && strings.HasPrefix(text(v.LaunchTemplateData.ImageId), resolvePrefix) {
			return true
		}
	}
	return false
}

// at is the instance with a volume as its root, unless what is known of it is too old.
func (k *known) at(volume string, now time.Time) (steady, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.steady {
		if s.disk != nil && text(s.disk.VolumeId) == volume && now.Sub(s.at) < steadyFor {
			return s, true
		}
	}
	return steady{}, false
}

// facts are those of an instance, unless they are too old.
func (k *known) facts(instance string, now time.Time) (steady, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.steady[instance]
	return s, ok && now.Sub(s.at) < steadyFor
}

func (k *known) keepFacts(instance string, s steady) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.steady[instance] = s
}

// name remembers the ID of an image, and imageOf tells it.
func (k *known) name(im types.Image) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.images[text(im.Name)] = text(im.ImageId)
}

func (k *known) imageOf(name string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.images[name]
}

// unname forgets an image that is deleted.
func (k *known) unname(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.images, name)
}

// makes remembers a snapshot of a volume, and madeOf tells it.
func (k *known) makes(volume, snapshot string, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.made[volume] = made{snapshot, at}
}

func (k *known) madeOf(volume string) (snapshot string, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.made[volume]
	return m.snapshot, m.at
}

// unmake forgets a snapshot that is deleted.
func (k *known) unmake(snapshot string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.made, func(_ string, m made) bool { return m.snapshot == snapshot })
}

// launches remembers the instance of a canary, canaryOf tells it, and terminates forgets it.
func (k *known) launches(pool kamino.Pool, name string, l launched) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.canaries[canaryKey(pool, name)] = l
}

func (k *known) canaryOf(pool kamino.Pool, name string) launched {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.canaries[canaryKey(pool, name)]
}

func (k *known) terminates(pool kamino.Pool, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.canaries, canaryKey(pool, name))
}

// canaryKey has the pool's name, too: by that canaries are told apart in the cloud.
func canaryKey(pool kamino.Pool, name string) string {
	return string(pool.ID) + " " + pool.Name + " " + name
}

// note remembers of snapshots whether an image is made of them.
func (k *known) note(imaged bool, snapshots ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range snapshots {
		k.imaged[id] = imaged
	}
}

// forget makes it unknown again: images of them are being made, or deleted.
func (k *known) forget(snapshots ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range snapshots {
		delete(k.imaged, id)
	}
}

// isImaged says whether an image is made of a snapshot, as far as that is known here.
func (k *known) isImaged(snapshot string) (imaged, sure bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	imaged, sure = k.imaged[snapshot]
	return imaged, sure
}
