\set a random(1, 300)
\set b random(1, 300)
\set c random(1, 300)
\set what random(1, 10)
\set more random(1, 9)
\set end random(1, 10)
BEGIN;
SELECT change(:a, :b, :what);
SELECT change(:b, :c, :more);
\if :end = 1
ROLLBACK;
\else
COMMIT;
\endif
