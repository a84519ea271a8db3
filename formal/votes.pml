/* Redlock: what becomes of votes where masters restart empty and answers are lost.
 *
 * Models: src/pawlock/redlock/link.py (`MastersRuntime._vote`), src/pawlock/redlock/votes.py (`Votes`),
 *   src/pawlock/redlock/nodes.py (`Incarnation.objection`), src/pawlock/redlock/grant.lua, renew.lua, leave.lua. Each
 *   script is one atomic step of one node.
 * Claims: exclusion: no two clients rely on a lease at once; orphan: a token that its client gave up (a failed attempt, a
 *   release, a loss) is on a node only where its undo did not come to: once it did, no vote comes any more. Where it is
 *   lost, the vote blocks the name there until its ttl is over, and grants nothing.
 * Bounds: three nodes, two clients with one attempt each, ttl of 2 ticks, two restarts, each at any moment and
 *   without memory. All nodes are asked at one moment. A vote is executed at any time after that, also after its
 *   attempt was given up, or never, unless its node restarted; its answer may be lost. A renewal, of
 *   the first client alone, is one moment for all nodes, each of which may be missed by it. An undo goes to all nodes,
 *   over any connection: it comes before the vote or after it, or never, and may come twice. One clock for all
 *   (`lease.pml` has others). A question goes to the life of the node that its rule was checked for: the
 *   identity of single connections, threads and loops of a client are left to the simulator. No node forgets without a restart, and fences are in `redlock.pml`.
 *
 * broken NO_RULE | exclusion | a node that restarted counts at once
 * broken NO_TOMB | orphan | an undo leaves no tombstone, so that a vote comes after it
 * broken HEARD_ONLY | orphan | only votes that were heard are taken back
 * reach KEPT | a lease outlives the restart of a node
 * reach BLOCKED | a vote whose undo was lost blocks a node after its client gave up
 */
#define NODES 3
#define CLIENTS 2
#define QUORUM 2
#define TTL 2
#define RESTARTS 2
#define NOBODY CLIENTS
#define AT(c, n) ((c) * NODES + (n))

mtype = { NEW, ASKING, HOLDING, OVER };
mtype mode[CLIENTS] = NEW;
byte valid[CLIENTS];              /* ticks for which it relies on its votes */
byte holder[NODES] = NOBODY;
byte left[NODES];                 /* ticks of the token there */
byte barred[NODES];               /* ticks until a life that began empty counts */
byte restarts;
bit struck;                       /* a node restarted under the first client's lease */
bit open[CLIENTS * NODES];        /* a question is on its way */
bit voted[CLIENTS * NODES];       /* the attempt heard a yes */
bit under_way[CLIENTS * NODES];   /* an undo that may come, or is lost */
bit dead[CLIENTS * NODES];        /* the node has a tombstone, and a question is on its way */
bit exclusion = 1, orphan = 1, unreached = 1;

#define VOTES(c) (voted[AT(c, 0)] + voted[AT(c, 1)] + voted[AT(c, 2)])

#ifdef NO_RULE
#define ASKS(c, n) 1
#else
#define ASKS(c, n) (barred[n] == 0)
#endif
inline check_orphan(c, n) {
  orphan = !(mode[c] == OVER && holder[n] == c && !under_way[AT(c, n)]);
  assert(orphan)
}

inline question(c, n) {
  if
  :: ASKS(c, n) -> open[AT(c, n)] = 1
  :: else
  fi
}

inline owe(c, n) {
#ifdef HEARD_ONLY
  under_way[AT(c, n)] = voted[AT(c, n)];
#else
  under_way[AT(c, n)] = 1;
#endif
  voted[AT(c, n)] = 0;
  check_orphan(c, n)
}

/* The attempt failed, or the lease was released or lost. */
inline give_up(c) {
  mode[c] = OVER;
  valid[c] = 0;
  owe(c, 0); owe(c, 1); owe(c, 2)
}

inline hold(c) {
  mode[c] = HOLDING;
#ifndef HEARD_ONLY
  voted[AT(c, 0)] = 0; voted[AT(c, 1)] = 0; voted[AT(c, 2)] = 0;
#endif
  exclusion = mode[0] != HOLDING || mode[1] != HOLDING;
  assert(exclusion)
}

/* One node says yes, or is not heard. */
inline renew(c, n) {
  if
  :: holder[n] == c -> left[n] = TTL; yes++
  :: holder[n] == c -> left[n] = TTL
  :: 1
  fi
}

proctype Client(byte c) {
  byte yes;
  do
  :: d_step { mode[c] == NEW -> mode[c] = ASKING; valid[c] = TTL; question(c, 0); question(c, 1); question(c, 2) }
  :: d_step { mode[c] == ASKING && VOTES(c) >= QUORUM -> hold(c) }
  :: atomic { c == 0 && mode[c] == HOLDING ->
       renew(c, 0); renew(c, 1); renew(c, 2);
       if
       :: yes >= QUORUM -> valid[c] = TTL
       :: else
       fi;
#ifdef KEPT
       unreached = !(yes >= QUORUM && struck);
       assert(unreached);
#endif
       yes = 0 }
  :: d_step { mode[c] == ASKING || mode[c] == HOLDING -> give_up(c) }
  od
}

/* What passes between one client and one node. */
proctype Line(byte c; byte n) {
  do
  /* grant.lua: whether the answer is lost is chosen as it runs */
  :: atomic { open[AT(c, n)] ->
       open[AT(c, n)] = 0;
       if
       :: holder[n] == NOBODY && !dead[AT(c, n)] ->
            holder[n] = c;
            left[n] = TTL;
            check_orphan(c, n);
#ifdef BLOCKED
            unreached = !(mode[c] == OVER);
            assert(unreached);
#endif
            if
            :: mode[c] == ASKING -> voted[AT(c, n)] = 1
            :: 1
            fi
       :: else
       fi;
       dead[AT(c, n)] = 0 }
  /* leave.lua, before the question or behind it; its answer may be lost, and then it comes once more */
  :: atomic { under_way[AT(c, n)] ->
       if
       :: holder[n] == c -> holder[n] = NOBODY; left[n] = 0
       :: else
       fi;
#ifndef NO_TOMB
       dead[AT(c, n)] = open[AT(c, n)];
#endif
       if
       :: under_way[AT(c, n)] = 0
       :: 1
       fi }
  od
}

proctype World() {
  byte c, n;
  do
  :: d_step { 1 ->
       for (n : 0 .. NODES - 1) {
         if
         :: left[n] == 1 -> left[n] = 0; holder[n] = NOBODY
         :: left[n] > 1 -> left[n]--
         :: else
         fi;
         if
         :: barred[n] > 0 -> barred[n]--
         :: else
         fi
       }
       for (c : 0 .. CLIENTS - 1) {
         if
         :: valid[c] == 1 -> give_up(c)
         :: valid[c] > 1 -> valid[c]--
         :: else
         fi
       }
       c = 0;
       n = 0 }
  :: atomic { restarts < RESTARTS ->
       restarts++;
       if
       :: n = 0
       :: n = 1
       :: n = 2
       fi;
       d_step {
#ifdef KEPT
         if
         :: mode[0] == HOLDING -> struck = 1
         :: else
         fi;
#endif
         holder[n] = NOBODY;
         left[n] = 0;
         barred[n] = TTL;
         for (c : 0 .. CLIENTS - 1) {
           open[AT(c, n)] = 0;
           dead[AT(c, n)] = 0
         }
         c = 0;
         n = 0 } }
  od
}

init {
  byte c, n;
  atomic {
    run World();
    for (c : 0 .. CLIENTS - 1) {
      run Client(c);
      for (n : 0 .. NODES - 1) { run Line(c, n) }
    }
  }
}
