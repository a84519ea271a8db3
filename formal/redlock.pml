/* Redlock: the fence of a grant by a majority, with write-back and concurrent grants.
 *
 * Models: src/pawlock/redlock/link.py (`MastersRuntime._vote`), src/pawlock/redlock/votes.py (`Votes`),
 *   src/pawlock/redlock/grant.lua, renew.lua, leave.lua. Each script is one atomic step of one node.
 * Claims: exclusion: no two candidates rely on a grant at once; rising: the fence of a grant that counts is above the
 *   fences of all grants that counted before it.
 * Bounds: three nodes that keep their memory, each with a first fence of its own 0 or 1; two attempts, at once
 *   or one after the other. Each message may come at any time, also after its attempt is over, or never; each reply may be lost; an attempt may
 *   outlive its validity at any point, and from then on each node may drop its vote. The undo of an attempt that is over
 *   goes over another connection: it comes before a vote, which its tombstone bars then, or after it, or never. Fences are last + 1: the server's
 *   time is left out, which only ever helps. No proposals, no blocks, no renewal.
 *   Restarts are in `votes.pml`.
 *
 * broken MAX_ONLY | rising | the largest fence of the majority counts without a write-back
 * broken UNCONDITIONAL | rising | the write-back counts on nodes that do not hold the token
 * broken HALF_QUORUM | rising | N/2 nodes suffice
 * broken NO_RECHECK | exclusion | validity is not checked again after the write-back
 * reach WRITTEN_BACK | a grant counts by its write-back
 * reach SPLIT | two candidates have a vote each at once
 */
#define NODES 3
#define TRIES 2
#define NOBODY TRIES
#ifdef HALF_QUORUM
#define QUORUM (NODES / 2)
#else
#define QUORUM (NODES / 2 + 1)
#endif
#define AT(c, n) ((c) * NODES + (n))

mtype = { NEW, ASKING, WRITING, HOLDING, OVER };
mtype mode[TRIES] = NEW;
bit late[TRIES];                 /* its validity is used up */
byte wanted[TRIES];              /* the fence of its grant */
byte holder[NODES] = NOBODY;
byte last[NODES];
bit asked[TRIES * NODES];        /* the vote has been executed, or never will */
byte vote[TRIES * NODES];        /* the fence that came with a vote that was heard of */
bit wrote[TRIES * NODES];        /* the write-back has been executed */
bit known[TRIES * NODES];        /* and was heard of */
byte top;
bit exclusion = 1, rising = 1, unreached = 1;

inline count(c) {
  exclusion = mode[0] != HOLDING && mode[1] != HOLDING;
  assert(exclusion);
  rising = wanted[c] > top;
  assert(rising);
  top = wanted[c];
  mode[c] = HOLDING
}

#define GIVEN(c, n) (vote[AT(c, n)] > 0)
#define VOTES(c) (GIVEN(c, 0) + GIVEN(c, 1) + GIVEN(c, 2))
#define SAME(c, n) (vote[AT(c, n)] == wanted[c])
#define AGREED(c) (SAME(c, 0) + SAME(c, 1) + SAME(c, 2) >= QUORUM)
#define KNOWN(c) (known[AT(c, 0)] + known[AT(c, 1)] + known[AT(c, 2)])

inline take_max(c, n) {
  if
  :: vote[AT(c, n)] > wanted[c] -> wanted[c] = vote[AT(c, n)]
  :: else
  fi
}

inline forget(c, n) {
  wrote[AT(c, n)] = 0;
  wanted[c] = 0;
  vote[AT(c, n)] = 0;
  known[AT(c, n)] = 0
}

#ifdef NO_RECHECK
#define IN_TIME(c) 1
#else
#define IN_TIME(c) (!late[c])
#endif

proctype Attempt(byte c) {
  do
  :: d_step { mode[c] == NEW && (c == 0 || mode[c - 1] != NEW) -> mode[c] = ASKING }  /* attempts are alike */
  :: d_step { mode[c] == ASKING && VOTES(c) >= QUORUM && !late[c] ->
       take_max(c, 0); take_max(c, 1); take_max(c, 2);
#ifdef MAX_ONLY
       count(c)
#else
       if
       :: AGREED(c) -> count(c)
       :: else -> mode[c] = WRITING
       fi
#endif
     }
  :: d_step { mode[c] == WRITING && KNOWN(c) >= QUORUM && IN_TIME(c) ->
#ifdef WRITTEN_BACK
       unreached = 0; assert(unreached);
#endif
       count(c) }
  :: d_step { (mode[c] == ASKING || mode[c] == WRITING) && !late[c] -> late[c] = 1 }
  /* it fails, or its holder leaves or learns of the loss; its belief ends before a node drops a vote */
  :: d_step { mode[c] == ASKING || mode[c] == WRITING || mode[c] == HOLDING -> mode[c] = OVER;
       forget(c, 0); forget(c, 1); forget(c, 2) }
  od
}

#define ENDED(c) (late[c] || mode[c] == OVER)

#ifdef UNCONDITIONAL
#define COUNTS(c, n) 1
#else
#define COUNTS(c, n) (holder[n] == c)
#endif

/* What one node does for one attempt; whether its reply is lost is chosen as the script runs. */
proctype Message(byte c; byte n) {
  do
  /* grant.lua, unless leave.lua was there before */
  :: atomic { mode[c] != NEW && !asked[AT(c, n)] && holder[n] == NOBODY ->
       asked[AT(c, n)] = 1;
       holder[n] = c;
       last[n]++;
       if
       :: mode[c] == ASKING -> vote[AT(c, n)] = last[n]
       :: 1
       fi;
#ifdef SPLIT
       unreached = !(holder[0] != holder[1] && holder[0] != NOBODY && holder[1] != NOBODY);
       assert(unreached)
#endif
     }
  :: atomic { mode[c] != NEW && !asked[AT(c, n)] && holder[n] != NOBODY -> asked[AT(c, n)] = 1 }  /* refused */
  /* renew.lua with the fence, also to a node whose vote was not heard of */
  :: atomic { wanted[c] > 0 && mode[c] == WRITING && !wrote[AT(c, n)] && COUNTS(c, n) ->
       wrote[AT(c, n)] = 1;
       if
       :: mode[c] == WRITING -> known[AT(c, n)] = 1
       :: 1
       fi;
       if
       :: last[n] < wanted[c] -> last[n] = wanted[c]
       :: else
       fi }
  /* expiry, or leave.lua behind the vote */
  :: atomic { holder[n] == c && ENDED(c) -> holder[n] = NOBODY }
  /* leave.lua before the vote: its tombstone */
  :: atomic { mode[c] == OVER && !asked[AT(c, n)] -> asked[AT(c, n)] = 1 }
  od
}

init {
  byte c, n;
  atomic {
    for (n : 0 .. NODES - 1) {
      if
      :: last[n] = 0
      :: n == 0 || last[n - 1] >= 1 -> last[n] = 1    /* nodes are alike: the order does not matter */
      fi
    }
    for (c : 0 .. TRIES - 1) {
      run Attempt(c);
      for (n : 0 .. NODES - 1) { run Message(c, n) }
    }
  }
}
