@echo off
rem One machine with Windows: a rank for each of its GPUs, or as many as NPROC says.
rem
rem     train.bat --config configs\two_ranks.yaml train.epochs=3
rem     set NPROC=4
rem
rem Windows has no NCCL, so ranks talk through gloo.
setlocal

if not defined TRAINER set "TRAINER=%~dp0..\trainer.py"
if not defined NPROC (
    for /f %%n in ('nvidia-smi --list-gpus 2^>nul ^| find /c "GPU "') do set "NPROC=%%n"
)
if not defined NPROC set "NPROC=2"
if "%NPROC%"=="0" set "NPROC=2"

rem The store of torch for Windows comes without libuv.
set "USE_LIBUV=0"

torchrun --standalone --nproc-per-node %NPROC% "%TRAINER%" parallel.backend=gloo %*
exit /b %ERRORLEVEL%
