/* Fence guards: claim, read, write, with writers that are paused past their leases.
 *
 * Models: src/pawlock/fencing/sql.py (`claim`, `update`), src/pawlock/fencing/orm.py, src/pawlock/fencing/guard.lua.
 *   Each statement or script is one atomic step of what is written to.
 * Claims: kept: no accepted change is lost; own: who was granted last is never refused; late: once a writer has
 *   claimed, nobody who was granted earlier writes.
 * Bounds: three writers, granted one after the other; a grant needs no end of the one before it, since that holder may
 *   be paused past its lease, at any point. Each claims once, then reads and writes twice, and stops when it is
 *   refused or at any other point. One thing that is written to, in which nothing but the guard compares.
 *
 * broken NO_CLAIM | kept | the rule without the claim: read, then write where no greater fence is
 * broken CLAIM_LATE | kept | the claim comes after the read
 * broken CLAIM_BLIND | late | a claim writes its fence without reading the stored one
 * broken BELOW | own | a fence has to be greater than the one that is there, not equal
 * broken BARE_WRITE | late | a write does not compare
 * reach REFUSED | a writer is refused that had read before another one was granted
 * reach ALL_THREE | the changes of all three writers are accepted
 */
#define WRITERS 3
#define ROUNDS 2

byte granted;                   /* fences are 1, 2, 3 */
byte seen;                      /* the greatest fence that the guard knows */
byte claimed;                   /* the greatest that a claim brought */
byte value, accepted;           /* each accepted write is to raise the value by one */
bit wrote[WRITERS + 1];
bit kept = 1, own = 1, late = 1, unreached = 1;

#ifdef BELOW
#define FITS(fence) ((fence) > seen)
#else
#define FITS(fence) ((fence) >= seen)
#endif
#ifdef BARE_WRITE
#define MAY_WRITE(fence) 1
#else
#define MAY_WRITE(fence) FITS(fence)
#endif
#ifdef CLAIM_BLIND
#define MAY_CLAIM(fence) 1
#else
#define MAY_CLAIM(fence) FITS(fence)
#endif

inline refuse(fence) {
  own = fence < granted;
  assert(own);
#ifdef REFUSED
  unreached = !old;
  assert(unreached);
#endif
  break
}

inline claim(fence) {
  atomic {
    if
    :: MAY_CLAIM(fence) -> seen = fence; claimed = (claimed < fence -> fence : claimed)
    :: else -> refuse(fence)
    fi
  }
}

inline read(fence) {
  atomic { known = value; old = fence == granted }
}

inline write(fence) {
  atomic {
    if
    :: MAY_WRITE(fence) ->
      late = claimed <= fence;
      assert(late);
      seen = (seen < fence -> fence : seen);
      value = known + 1;
      accepted++;
      kept = value == accepted;
      assert(kept);
      wrote[fence] = 1;
#ifdef ALL_THREE
      unreached = !(wrote[1] && wrote[2] && wrote[3]);
      assert(unreached);
#endif
    :: else -> refuse(fence)
    fi
  }
}

proctype Writer(byte fence) {
  byte known, round;
  bit old;
  atomic { granted == fence - 1 -> granted = fence }
  do
  :: round == ROUNDS -> break
  :: break                      /* it ends, or never wakes up */
  :: round < ROUNDS ->
#ifdef CLAIM_LATE
    read(fence);
    if
    :: round == 0 -> claim(fence)
    :: else
    fi;
#else
#ifndef NO_CLAIM
    if
    :: round == 0 -> claim(fence)
    :: else
    fi;
#endif
    read(fence);
#endif
    write(fence);
    round++
  od
}

init {
  atomic { run Writer(1); run Writer(2); run Writer(3) }
}
