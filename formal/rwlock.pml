/* The read-write lock, with a writer that waits.
 *
 * Models: src/pawlock/primitives/permits/acquire.lua, renew.lua, leave.lua and _holders.lua (`fits`, `plan`, `settle`)
 *   with modes 1 (reader) and x (writer). Each script is one atomic step, as on the server.
 * Claims: exclusion: a writer that believes to hold is alone; live: whoever waits, a writer or a reader, holds in
 *   the end, though readers come without end and holders die, if each process that can go on does so (weak fairness).
 * Bounds: two writers and two readers, all of which may die while they hold, any number of times, except one writer
 *   and one reader, of whom the claim `live` speaks. Each may stop to come. A dead holder's lease ends some time after its death and is then
 *   only noticed by the next script. No time, no dying waiters (queue.pml has them), no weights.
 *
 * broken READERS_PASS | live | a reader is let in though a writer waits
 * broken NO_POLL | live | a waiter's renewal does not serve the queue after a dead holder's lease has ended
 * broken BESIDE_READERS | exclusion | a writer counts only the writers
 * broken BESIDE_WRITER | exclusion | a reader does not look for a writer
 * reach WRITER_SERVED | a writer is served from the queue
 * reach EXPIRED | a dead holder's lease ends while another waits
 */
#define N 4
#define IS_WRITER(i) ((i) < 2)
#define MAY_DIE(i) ((i) == 1 || (i) == 3)

mtype = { OUT, WAITING, HOLDING, DEAD };
mtype mode[N] = OUT;
bit held[N];            /* what the server has */
chan line = [N] of { byte };
byte readers, writers;  /* of those that the server has */
bit exclusion = 1;
bit unreached = 1;

inline let_in(i) {
  held[i] = 1;
  if
  :: IS_WRITER(i) -> writers++
  :: else -> readers++
  fi
}

inline let_out(i) {
  held[i] = 0;
  if
  :: IS_WRITER(i) -> writers--
  :: else -> readers--
  fi
}

#ifdef BESIDE_READERS
#define WRITER_FITS (writers == 0)
#else
#define WRITER_FITS (writers + readers == 0)
#endif
#ifdef BESIDE_WRITER
#define READER_FITS 1
#else
#define READER_FITS (writers == 0)
#endif
#define FITS(i) ((IS_WRITER(i) && WRITER_FITS) || (!IS_WRITER(i) && READER_FITS))

/* Serves the queue from its head for as far as it fits. */
inline pump(h) {
  do
  :: nempty(line) ->
     line?<h>;
     if
     :: FITS(h) -> line?h; let_in(h);
#ifdef WRITER_SERVED
        unreached = !IS_WRITER(h); assert(unreached);
#endif
     :: else -> break
     fi
  :: else -> break
  od;
  h = 0
}

/* What a holder that has been told believes. */
#define INSIDE(i) (mode[i] == HOLDING)
inline check() {
  exclusion = !(INSIDE(0) && (INSIDE(1) || INSIDE(2) || INSIDE(3))) && !(INSIDE(1) && (INSIDE(2) || INSIDE(3)));
  assert(exclusion)
}

#ifdef READERS_PASS
#define MAY_PASS(i) (!IS_WRITER(i) || empty(line))
#else
#define MAY_PASS(i) empty(line)
#endif

proctype Client(byte i) {
  byte h;
  do
  /* acquire: first what a dead holder left behind goes to those who wait, then oneself */
  :: atomic { mode[i] == OUT && !held[i] -> pump(h);
       if
       :: MAY_PASS(i) && FITS(i) -> let_in(i); mode[i] = HOLDING; check()
       :: else -> line!i; mode[i] = WAITING
       fi }
  /* told by a message or by its next renewal */
  :: atomic { mode[i] == WAITING && held[i] -> mode[i] = HOLDING; check() }
#ifndef NO_POLL
  /* renew: serves the queue where that changes anything */
  :: atomic { mode[i] == WAITING && !held[i] && ((line?[0] && FITS(0)) || (line?[1] && FITS(1)) ||
       (line?[2] && FITS(2)) || (line?[3] && FITS(3))) -> pump(h) }
#endif
  /* leave */
  :: atomic { mode[i] == HOLDING -> mode[i] = OUT; let_out(i); pump(h) }
  :: atomic { mode[i] == HOLDING && MAY_DIE(i) -> mode[i] = DEAD }
  /* it never comes again */
  :: atomic { mode[i] == OUT -> break }
  /* the lease of the dead ends; another process takes its place */
  :: atomic { mode[i] == DEAD -> mode[i] = OUT; let_out(i);
#ifdef EXPIRED
       unreached = empty(line); assert(unreached)
#endif
     }
  od
}

init {
  atomic { run Client(0); run Client(1); run Client(2); run Client(3) }
}

ltl live { ([] ((mode[0] == WAITING) -> <> (mode[0] == HOLDING))) && ([] ((mode[2] == WAITING) -> <> (mode[2] == HOLDING))) }
