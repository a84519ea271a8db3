/* A lease, its renewal and its loss.
 *
 * Models: src/pawlock/primitives/mutex/acquire.lua, renew.lua, leave.lua; src/pawlock/core/records.py, src/pawlock/core/base_lease.py. Each
 *   script is one atomic step of the server.
 * Claims: exclusion: no two clients believe at once that they hold, each judging by its own clock alone; no_ghost: a
 *   token that left is never on the server again.
 * Bounds: two clients, ttl 3 ticks; time without end. The clock of the first may lose one tick in any three, and it
 *   may have two requests under way, a request and its resend or what came before; the other has a true clock and one
 *   request, and does not renew. Requests may be executed late or never, in any order, and each reply may be late or lost. A client may pause at any point, for any time: nothing forces it to go on, and its clock counts
 *   what passed. A client gives up, releases and starts again with a new token as often as it likes; two tokens each
 *   are used in turn, once nothing of the former use is under way. The server keeps its memory and its clock does not
 *   jump. What a paused holder does after its last look at the clock is not judged: that is what fences are for.
 *
 * broken FROM_REPLY | exclusion | validity is counted from when the reply came
 * broken NO_DRIFT | exclusion | nothing is taken off for a slow clock
 * broken NO_LEFT | exclusion | a resent acquire counts the whole ttl instead of what is left
 * broken SET_ON_RENEW | no_ghost | renew sets the key without looking at its token
 * broken RECREATE | no_ghost | renew sets the key again where it is gone
 * broken BARE_DELETE | exclusion | leave deletes the key without looking at its token
 * broken NO_TOMB | no_ghost | leave sets no tombstone, so a late acquire brings the token back
 * reach TAKEN_OVER | a client holds after the other's lease expired while it was held
 * reach RENEWED | a renewal prolongs what is held
 */
#define TTL 3
#ifdef NO_DRIFT
#define DRIFT 0
#else
#define DRIFT 1
#endif
#define NOBODY 4
#define NONE 2
#define TOKEN(i) (2 * (i) + gen[i])

mtype = { ACQUIRE, RENEW, LEAVE };
/* the server */
byte owner = NOBODY, left;
bit dead[4];
/* the clients; a request lies in one of two slots: 0 and 1 of the first, 2 and 3 of the second */
bit gen[2];
bit asking[2];          /* between acquire and its answer */
byte valid[2];          /* ticks of its own clock for which it still believes */
byte age[2];            /* ticks of its own clock since the request that it waits for was sent */
byte slow[2];           /* ticks until its clock may lose one again */
byte waits[2] = NONE;   /* the slot of the request that it waits for */
mtype kind[4];
byte token[4];
bit asked[4];           /* under way to the server */
bit answered[4];        /* a reply is under way */
byte reply[4];          /* what is left of the lease; 0: not held */
bit exclusion = 1, no_ghost = 1, unreached = 1;

inline give(t, ticks) {
  owner = t;
  left = ticks;
  no_ghost = !dead[t];
  assert(no_ghost)
}

#ifdef SET_ON_RENEW
#define RENEWS(t) 1
#else
#ifdef RECREATE
#define RENEWS(t) (owner == t || owner == NOBODY)
#else
#define RENEWS(t) (owner == t)
#endif
#endif
#ifdef BARE_DELETE
#define DELETES(t) 1
#else
#define DELETES(t) (owner == t)
#endif
#ifdef NO_TOMB
#define BARRED(t) 0
#else
#define BARRED(t) dead[t]
#endif

/* One script. */
inline execute(s) {
  answered[s] = 1;
  reply[s] = 0;
  if
  :: kind[s] == ACQUIRE && owner == NOBODY && !BARRED(token[s]) -> give(token[s], TTL); reply[s] = TTL
  :: kind[s] == ACQUIRE && owner == token[s] ->
#ifdef NO_LEFT
     reply[s] = TTL
#else
     reply[s] = left
#endif
  :: kind[s] == RENEW && RENEWS(token[s]) -> give(token[s], TTL); reply[s] = TTL
  :: kind[s] == LEAVE ->
     dead[token[s]] = 1;
     if
     :: DELETES(token[s]) -> owner = NOBODY; left = 0
     :: else
     fi
  :: else
  fi;
  asked[s] = 0;
  clean(s)
}

inline clean(s) {
  if
  :: !(waits[s / 2] == s % 2) -> answered[s] = 0; reply[s] = 0    /* nobody waits for it: the reply is void */
  :: else
  fi;
  if
  :: !asked[s] && !(waits[s / 2] == s % 2) -> kind[s] = 0; token[s] = 0
  :: else
  fi
}

/* Sends in the slot that is free; what it waited for before is void from here on. */
#define SLOT(i, k) (2 * (i) + (k))
#define FREE(i, k) ((i == 0 || k == 0) && !asked[SLOT(i, k)] && waits[i] != k)
inline send(i, what) {
  if
  :: FREE(i, 0) -> k = 0
  :: else -> k = 1
  fi;
  o = waits[i];
  kind[SLOT(i, k)] = what;
  token[SLOT(i, k)] = TOKEN(i);
  asked[SLOT(i, k)] = 1;
  if
  :: what == LEAVE -> waits[i] = NONE; age[i] = 0
  :: else -> waits[i] = k; age[i] = 0
  fi;
  if
  :: o != NONE -> clean(SLOT(i, o))
  :: else
  fi;
  k = 0; o = 0
}

#ifdef FROM_REPLY
#define SPENT(i) 0
#else
#define SPENT(i) age[i]
#endif

inline hear(i) {
  k = waits[i];
  waits[i] = NONE;
  o = reply[SLOT(i, k)];
  if
  :: o > DRIFT + SPENT(i) && (asking[i] || valid[i] > 0) ->
     o = o - DRIFT - SPENT(i);
#ifdef RENEWED
     unreached = !(valid[i] > 0 && o > valid[i]); assert(unreached);
#endif
#ifdef TAKEN_OVER
     unreached = !(asking[i] && waits[1 - i] != NONE && valid[1 - i] == 0 && !asking[1 - i]); assert(unreached);
#endif
     if
     :: o > valid[i] -> valid[i] = o
     :: else
     fi
  :: o == 0 -> valid[i] = 0     /* not held, or held no more */
  :: else
  fi;
  asking[i] = 0;
  age[i] = 0;
  clean(SLOT(i, k));
  k = 0; o = 0;
  exclusion = !(valid[0] > 0 && valid[1] > 0);
  assert(exclusion)
}

#define QUIET(i) (!asked[SLOT(i, 0)] && !asked[SLOT(i, 1)] && waits[i] == NONE)
#define IDLE(i) (!asking[i] && valid[i] == 0)

proctype Client(byte i) {
  byte k, o;
  do
  :: d_step { IDLE(i) && QUIET(i) && owner != 2 * i + 1 - gen[i] ->
       gen[i] = 1 - gen[i];
       dead[TOKEN(i)] = 0;
       asking[i] = 1;
       send(i, ACQUIRE) }
  :: d_step { asking[i] && (FREE(i, 0) || FREE(i, 1)) -> send(i, ACQUIRE) }
  :: d_step { i == 0 && valid[i] > 0 && (FREE(i, 0) || FREE(i, 1)) -> send(i, RENEW) }
  :: d_step { (asking[i] || valid[i] > 0) && (FREE(i, 0) || FREE(i, 1)) ->
       asking[i] = 0; valid[i] = 0; send(i, LEAVE) }
  :: d_step { waits[i] != NONE && answered[SLOT(i, waits[i])] -> hear(i) }
  :: d_step { waits[i] != NONE && !asking[i] && valid[i] == 0 ->    /* the lease is lost, the renewal void */
       o = waits[i]; waits[i] = NONE; age[i] = 0; clean(SLOT(i, o)); o = 0 }
  od
}

proctype Network() {
  byte s;
  do
  :: atomic { select (s : 0 .. 3);
       if
       :: d_step { asked[s] -> execute(s) }
       :: d_step { asked[s] -> asked[s] = 0; clean(s) }
       :: else
       fi;
       s = 0 }
  od
}

inline pass(i, lost) {
  if
  :: lost -> slow[i] = TTL
  :: else ->
     if
     :: valid[i] > 0 -> valid[i]--
     :: else
     fi;
     if
     :: waits[i] != NONE && age[i] < TTL -> age[i]++
     :: else
     fi
  fi;
  if
  :: slow[i] > 0 -> slow[i]--
  :: else
  fi
}

#define MAY_LOSE(i) (i == 0 && slow[i] == 0)

proctype Time() {
  bit a, b;
  do
  :: atomic {
       if
       :: MAY_LOSE(0) -> a = 1
       :: 1
       fi;
       if
       :: MAY_LOSE(1) -> b = 1
       :: 1
       fi;
       if
       :: left > 0 -> left--
       :: else
       fi;
       if
       :: left == 0 -> owner = NOBODY
       :: else
       fi;
       pass(0, a);
       pass(1, b);
       a = 0; b = 0 }
  od
}

init {
  atomic { run Client(0); run Client(1); run Network(); run Time() }
}
