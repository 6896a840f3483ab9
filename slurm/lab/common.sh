# Shared by start and stop. A lab is known by its folder; everything else is derived from its id.
# What belongs to a lab: the processes in its record (believed only while pid, start time and boot
# agree), the network namespaces and the bridge that carry its id. Nothing else is ever touched.

RECORDS=/run/sentinel-slurm-lab # one file per lab, outside its folder: a lost folder is still cleaned

lab_id() { printf %s "$1" | sha256sum | cut -c1-6; }

start_time() { # of a process, in clock ticks since boot; empty when there is none (or a zombie)
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  set -- ${stat##*) }
  [ "$1" != Z ] && echo "${20}"
}

boot_id() { cat /proc/sys/kernel/random/boot_id; }

alive() { # pid ticks: the very process that was recorded, not another that got its number
  [ -n "${2:-}" ] && [ "$(start_time "$1")" = "$2" ]
}

lab_runs() { # id: is the controller of this lab alive?
  local name pid ticks
  [ "$(sed -n 1p "$RECORDS/$1" 2>/dev/null)" = "$(boot_id)" ] || return 1
  while read -r name pid ticks; do
    [ "$name" = slurmctld ] && alive "$pid" "$ticks" && return 0
  done < <(tail -n +3 "$RECORDS/$1")
  return 1
}

end_process() { # name pid ticks
  local target=$2
  # A node: unshare(1) ignores TERM while it waits, so tell its only child, PID 1 of the node.
  [[ $1 == node-* ]] && target=$(cat "/proc/$2/task/$2/children" 2>/dev/null)
  kill -TERM ${target:-$2} 2>/dev/null
  for _ in {1..50}; do alive "$2" "$3" || return 0; sleep 0.1; done
  alive "$2" "$3" && kill -KILL "$2" 2>/dev/null && echo "lab $id: $1 (pid $2) had to be killed" >&2
  return 0
}

end_lab() ( # id: everything that this lab started, newest first; also of one that died half-way
  set +e
  id=$1
  if [ -f "$RECORDS/$id" ] && [ "$(sed -n 1p "$RECORDS/$id")" = "$(boot_id)" ]; then
    while read -r name pid ticks; do
      alive "$pid" "$ticks" && end_process "$name" "$pid" "$ticks"
    done < <(tail -n +3 "$RECORDS/$id" | tac)
  fi
  for ns in $(ip netns list 2>/dev/null | awk -v p="slab$id-" 'index($1, p) == 1 {print $1}'); do
    for pid in $(ip netns pids "$ns" 2>/dev/null); do kill -KILL "$pid" 2>/dev/null; done
    ip netns del "$ns" 2>/dev/null
  done
  ip link del "slab$id" 2>/dev/null
  rm -f "$RECORDS/$id"
  return 0
)
