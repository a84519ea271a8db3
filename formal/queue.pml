/* The hand-off queue, with waiters and holders that die.
 *
 * Models: src/pawlock/primitives/mutex/acquire.lua, renew.lua, leave.lua; src/pawlock/primitives/_queue.lua (`plan`, `pump`)
 *   and src/pawlock/primitives/_tickets.lua. A script and its reply are one atomic step; hand-off messages may be lost.
 * Claims: exclusion: two clients never believe at once; dead_grant: the name is never held for a client that died as a
 *   waiter for longer than a ticket after its death, however many die; withdrawn: nobody who withdrew is served; live:
 *   client 0, which waits and lives, is served in the end, if each process that can go on does so (weak fairness).
 * Bounds: three clients; ttl 3 ticks, ticket 2, time without end. Clients 1 and 2 die at any point, any number of
 *   times, withdraw, or come no more; a copy of an enqueue comes late. Who lives renews before its ticket or lease ends,
 *   and leaves within 2 ticks of holding: lease.pml has those who are late, and the drift of clocks.
 *
 * broken NO_PUMP | live | a waiter's renewal does not serve the queue when the holder's lease has ended
 * broken FULL_TTL | dead_grant | a hand-off gives the whole ttl instead of the rest of the ticket
 * broken NO_TOMB | withdrawn | withdrawing leaves no tombstone, so a late enqueue makes a ghost
 * broken KEEP_TICKET | withdrawn | withdrawing leaves the ticket
 * broken PUMP_HELD | exclusion | withdrawing serves the queue though the name is held
 * reach DIED_FIRST | the name is handed to a dead waiter
 * reach HANDED | a living waiter is served
 */
#define N 3
#define NOBODY 3
#define TTL 3
#define TICKET 2
#define MOST 2

mtype = { OUT, WAITING, HOLDING, DEAD };
mtype mode[N] = OUT;
byte owner = NOBODY, left;
chan line = [N] of { byte };
byte ticket[N];       /* what is left of it */
bit waited[N];        /* it died as a waiter */
byte since[N];        /* ticks since then */
bit quit[N];          /* it withdrew */
bit copy[N];          /* a copy of its enqueue is under way */
byte held[N];         /* ticks for which it has held */
bit exclusion = 1, dead_grant = 1, withdrawn = 1, unreached = 1;

/* Gives a free name to the first live ticket; the lease is the ticket's, its role alone changes. */
inline pump(h) {
  do
  :: owner == NOBODY && nempty(line) ->
     line?h;
     if
     :: ticket[h] > 0 ->
        owner = h;
#ifdef FULL_TTL
        left = TTL;
#else
        left = ticket[h];
#endif
        ticket[h] = 0;
        withdrawn = !quit[h];
        assert(withdrawn);
#ifdef DIED_FIRST
        unreached = !waited[h]; assert(unreached);
#endif
     :: else
     fi
  :: else -> break
  od;
  h = 0
}

inline believe(i) {
  mode[i] = HOLDING;
  left = TTL;
  exclusion = (mode[0] == HOLDING) + (mode[1] == HOLDING) + (mode[2] == HOLDING) == 1;
  assert(exclusion)
}

inline enqueue(i) {
  line!i;
  ticket[i] = TICKET
}

#ifdef NO_TOMB
#define BARRED(i) 0
#else
#define BARRED(i) quit[i]
#endif
#define QUEUED(i) (line??[i])

inline take(i) {
  if
  :: owner == NOBODY && empty(line) -> owner = i; believe(i)
  :: else ->
     pump(h);
     if
     :: owner == NOBODY -> owner = i; believe(i)
     :: else -> enqueue(i); mode[i] = WAITING
     fi
  fi
}

inline withdraw(i) {
  quit[i] = 1;
  mode[i] = OUT;
#ifndef KEEP_TICKET
  line??eval(i);
  ticket[i] = 0;
#endif
#ifdef PUMP_HELD
  owner = NOBODY;
#endif
  pump(h)
}

#ifdef NO_PUMP
#define SERVES 0
#else
#define SERVES (owner == NOBODY)
#endif

proctype Client(byte i) {
  byte h;
  do
  /* acquire, with a token of its own: nothing of the one before is left */
  :: atomic { mode[i] == OUT && owner != i && !QUEUED(i) && !copy[i] -> quit[i] = 0; take(i);
       if
       :: i != 0 && mode[i] == WAITING -> copy[i] = 1
       :: 1
       fi }
  /* renew: raises the ticket, and serves the queue */
  :: atomic { mode[i] == WAITING && owner != i && (ticket[i] < TICKET || SERVES) -> ticket[i] = TICKET;
#ifndef NO_PUMP
       pump(h)
#endif
     }
  /* renew, or the message of the hand-off and the renewal that confirms it */
  :: atomic { mode[i] == WAITING && owner == i ->
#ifdef HANDED
       unreached = 0; assert(unreached);
#endif
       believe(i) }
  :: atomic { mode[i] == HOLDING && owner == i && left < TTL -> left = TTL }
  /* leave */
  :: atomic { mode[i] == HOLDING -> mode[i] = OUT; held[i] = 0;
       if
       :: owner == i -> owner = NOBODY; left = 0
       :: else
       fi;
       pump(h) }
  :: atomic { i != 0 && mode[i] == WAITING && owner != i && QUEUED(i) -> withdraw(i) }
  /* a late copy of the enqueue: a token that waits or holds is left as it is, one that withdrew is barred */
  :: atomic { copy[i] -> copy[i] = 0;
       if
       :: mode[i] == OUT && quit[i] && !BARRED(i) && !QUEUED(i) && owner != i -> enqueue(i)
       :: else
       fi }
  :: atomic { i != 0 && mode[i] == WAITING -> mode[i] = DEAD; waited[i] = 1; since[i] = 0 }
  :: atomic { i != 0 && mode[i] == HOLDING -> mode[i] = DEAD; held[i] = 0 }
  /* another process in the place of the dead, once the server has nothing of it */
  :: atomic { mode[i] == DEAD && owner != i && !QUEUED(i) -> mode[i] = OUT; waited[i] = 0; since[i] = 0 }
  /* it comes no more */
  :: atomic { i != 0 && mode[i] == OUT && !copy[i] -> break }
  od
}

inline pass(i) {
  if
  :: ticket[i] > 0 -> ticket[i]--
  :: else
  fi;
  if
  :: mode[i] == HOLDING -> held[i]++
  :: else
  fi;
  if
  :: waited[i] && since[i] <= TICKET -> since[i]++
  :: else
  fi;
  if
  :: waited[i] && owner == i -> dead_grant = since[i] <= TICKET; assert(dead_grant)
  :: else
  fi
}

/* Whoever lives acts in time. */
#define LATE(i) ((mode[i] == WAITING && ((owner == i && left == 1) || (owner != i && ticket[i] == 1))) || \
  (mode[i] == HOLDING && ((owner == i && left == 1) || held[i] == MOST)))

proctype Time() {
  do
  :: atomic { !LATE(0) && !LATE(1) && !LATE(2) ->
       if
       :: left > 0 -> left--
       :: else
       fi;
       if
       :: left == 0 -> owner = NOBODY
       :: else
       fi;
       pass(0); pass(1); pass(2) }
  od
}

init {
  atomic { run Client(0); run Client(1); run Client(2); run Time() }
}

ltl live { [] ((mode[0] == WAITING) -> <> (mode[0] == HOLDING)) }
