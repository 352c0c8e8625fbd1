;; Takes memory in many memories, each of them small, until there is no more.
;;
;; Rust gives a component one memory, so this one is written by hand, without an SDK: `cargo xtask components` makes a
;; component of it and of the world `provider` in `wit/`. Its numbers are the canonical ABI's layouts of that world's
;; records. It misbehaves in `acquire` alone, whatever its configuration says.
(module
  ;; Where arguments, and what is answered, stand.
  (memory (export "memory") 64)
  ;; None of these may become larger than 20 MiB; together they may become 320.
  (memory $m0 1 320) (memory $m1 1 320) (memory $m2 1 320) (memory $m3 1 320)
  (memory $m4 1 320) (memory $m5 1 320) (memory $m6 1 320) (memory $m7 1 320)
  (memory $m8 1 320) (memory $m9 1 320) (memory $m10 1 320) (memory $m11 1 320)
  (memory $m12 1 320) (memory $m13 1 320) (memory $m14 1 320) (memory $m15 1 320)

  ;; `manifest`, at 64. Pointer and length of each string and list.
  (data (i32.const 64)
    (i32 256 19)   ;; key
    (i32 280 5)    ;; version
    (i32 288 11)   ;; title
    (i32 304 74)   ;; summary
    (i32 1)        ;; driver: sandbox
    (i32 384 17)   ;; config-schema
    (i32 0 0 0 0 0 0 0 0) ;; image: none
    (i32 0 0)      ;; request: origins,
    (i32 0)        ;;   neither ssh nor streams,
    (i32 64 1000 64 8) ;; limits: memory-mib, cpu, exchanges, body-mib
    (i32 0 0)      ;; credentials
    (i32 0 0)      ;; mints
    (i32 0 0)      ;; operations
    (i32 0 0)      ;; checks
    (i32 0)        ;; features
    (i32 60000))   ;; acquire-timeout
  (data (i32.const 256) "hostile-memory-many")
  (data (i32.const 280) "0.1.0")
  (data (i32.const 288) "memory-many")
  (data (i32.const 304) "Takes memory in many memories, none of them large, until there is no more.")
  (data (i32.const 384) "{\"type\":\"object\"}")

  ;; What arguments are put behind. An instance serves one call, so that nothing is ever given back.
  (global $free (mut i32) (i32.const 1024))
  (func (export "cabi_realloc") (param $old i32) (param $had i32) (param $align i32) (param $wanted i32) (result i32)
    (local $at i32)
    (if (local.get $old) (then (unreachable)))
    (local.set $at
      (i32.and
        (i32.add (global.get $free) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
    (global.set $free (i32.add (local.get $at) (local.get $wanted)))
    (local.get $at))

  ;; Every answer stands at 512, where all is zero until something is put there: `ok`, and in it nothing.
  (func (export "leasehold:provider/lifecycle@0.1.0#describe") (result i32)
    (i32.const 64))

  ;; `ok`, and the configuration, which stands behind the context's 68 bytes.
  (func (export "leasehold:provider/lifecycle@0.1.0#check-config") (param $arguments i32) (result i32)
    (i64.store (i32.const 516) (i64.load (i32.add (local.get $arguments) (i32.const 68))))
    (i32.const 512))

  ;; `ok`, and no finding.
  (func (export "leasehold:provider/lifecycle@0.1.0#probe") (param i32) (result i32)
    (i32.const 512))

  (func (export "leasehold:provider/lifecycle@0.1.0#acquire") (param i32) (result i32)
    (loop $again
      (block $refused
        (br_if $refused (i32.eq (memory.grow $m0 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m1 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m2 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m3 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m4 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m5 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m6 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m7 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m8 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m9 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m10 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m11 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m12 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m13 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m14 (i32.const 11)) (i32.const -1)))
        (br_if $refused (i32.eq (memory.grow $m15 (i32.const 11)) (i32.const -1)))
        (br $again)))
    unreachable)

  ;; `ok`: never call again, and the backend said nothing.
  (func (export "leasehold:provider/lifecycle@0.1.0#keep-alive") (param i32) (result i32)
    (i32.const 512))

  ;; `ok`, and the condition `ready`.
  (func (export "leasehold:provider/lifecycle@0.1.0#inspect") (param i32) (result i32)
    (i32.store8 (i32.const 516) (i32.const 1))
    (i32.const 512))

  (func (export "leasehold:provider/lifecycle@0.1.0#release") (param i32) (result i32)
    (i32.const 512))

  ;; `ok`, and an empty page, which is the last.
  (func (export "leasehold:provider/lifecycle@0.1.0#list") (param i32) (result i32)
    (i32.const 512)))
